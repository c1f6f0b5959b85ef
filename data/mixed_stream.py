"""The batches of a mixture of objectives.

Each part has a stream, which reads all rows of the source in an order of its own. Part p of the
batch of step s is a function of (seed, p's name, s), whatever the other parts are.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np

from data.config import Data
from data.mixed import Mixed, count_positions
from data.pipeline import Stream
from data.rows import hashing
from data.rows.tables import Batch
from data.source import Source
from data.tensorflow_import import import_tensorflow

PARTS_KEY = 5  # purpose of a key, after the purposes in data/pipeline.py and data/composed.py


def open_stream(
    source: Source, data: Data, *, split: str = "train", seed: int = 0, for_evaluation: bool = False
) -> Stream | MixedStream:
    """Return the stream of one split of a source, a `MixedStream` if the objective is a mixture.

    Args:
      split: "train" or "heldout".
      seed: seed of order, mixture and masks.
      for_evaluation: whether the stream is for evaluation; see `MixedStream`.

    Raises:
      ValueError: the settings are invalid.
    """
    if isinstance(data.objective, Mixed):
        return MixedStream(source, data, split=split, seed=seed, for_evaluation=for_evaluation)
    return Stream(source, data, split=split, seed=seed)


class MixedStream:
    """The streams of a mixture, with the interface of a `Stream` that a trainer uses.

    streams: {part: stream}.
    num_rows: number of rows of all parts together; each part reads the whole split.
    unrecorded_parts: parts without a position in the checkpoint; see `start_at_row`.
    """

    def __init__(
        self,
        source: Source,
        data: Data,
        *,
        split: str = "train",
        seed: int = 0,
        for_evaluation: bool = False,
    ) -> None:
        """Open the stream of each part; the arguments are as for `Stream`.

        for_evaluation: give each part batches of as many positions as the whole mixture has, since
          the parts are evaluated one after the other.
        """
        assert isinstance(data.objective, Mixed)
        self.data, self.objective, self.seed = data, data.objective, seed
        num_rows = data.objective.count_part_rows(data.batch_size)
        if for_evaluation:
            positions = count_positions(data.objective, data.batch_size)
            for part in data.objective.parts:
                own = count_positions(part.objective, num_rows[part.name])
                num_rows[part.name] *= (
                    positions // own
                )  # a multiple, so that it divides over a mesh
        self.streams = {
            part.name: Stream(
                source,
                dataclasses.replace(data, objective=part.objective, batch_size=num_rows[part.name]),
                split=split,
                seed=derive_seed(seed, part.name),
            )
            for part in data.objective.parts
        }
        first = next(iter(self.streams.values()))
        self.name, self.split, self.vocabulary = first.name, first.split, first.vocabulary
        self.num_rows = sum(stream.num_rows for stream in self.streams.values())
        self.unrecorded_parts: list[str] = []

    def start_at_row(self, step: int, row: Any) -> None:
        """Let the batch of `step` begin with given examples.

        Args:
          row: {part: number of its first example}. A part without a number begins with its first
            example, and `unrecorded_parts` lists it. A plain number comes from a run with one
            objective and counts for no part.
        """
        numbers = row if isinstance(row, dict) else {}
        self.unrecorded_parts = [name for name in self.streams if step and name not in numbers]
        for name, stream in self.streams.items():
            stream.start_at_row(step, numbers.get(name, 0))

    def locate_rows(self, step: int) -> dict[str, int]:
        """Return {part: number of its examples before this step}."""
        return {name: stream.locate_rows(step) for name, stream in self.streams.items()}

    def build_batch(self, step: int) -> dict[str, Batch]:
        """Return {part: its batch}, as `Stream.build_batch`."""
        return {name: stream.build_batch(step) for name, stream in self.streams.items()}

    def make_dataset(self, start_step: int = 0) -> Any:
        """Return an endless tf.data.Dataset of `build_batch(step)`, step = start_step, ..."""
        tf = import_tensorflow("Stream.make_dataset")
        datasets = {name: stream.make_dataset(start_step) for name, stream in self.streams.items()}
        return tf.data.Dataset.zip(datasets)


def continue_rows(stream: Stream | MixedStream, before: Stream | MixedStream, step: int) -> None:
    """Let the batch of `step` begin after the rows that another stream has read by then.

    Parts of the same name continue each other, and a new part begins with its first row. A single
    objective counts the rows of all parts of a mixture before it.
    """
    if "" in stream.streams and "" not in before.streams:
        stream.start_at_row(step, sum(before.locate_rows(step).values()))
        return
    for part, own in stream.streams.items():
        if part in before.streams:
            continue_stream(own, before.streams[part], step)
        else:
            own.start_at_row(step, 0)


def continue_stream(stream: Stream, before: Stream, step: int) -> None:
    """Let the batch of `step` begin after the examples that `before` has read by then.

    Each source goes on with its next example, also if the rates of the sources differ.
    """
    examples = -(-before.locate_rows(step) // before.objective.repeats)
    stream.start_at_row(step, examples * stream.objective.repeats)
    if not (stream.lane_order or before.lane_order):
        read_S = count_examples(before, examples) + before.shift_S
        stream.shift_S = read_S - count_examples(stream, examples)


def count_examples(stream: Stream, position: int) -> np.ndarray:
    """Return how many positions of the order before `position` each source has: int64 [S]."""
    mixture = stream.source_mixture
    if mixture is None:
        return np.array([position])
    block, within = divmod(position, mixture.block)
    here_S = np.bincount(mixture.source_N[:within], minlength=len(mixture.counts_S))
    return block * mixture.counts_S + here_S


def derive_seed(seed: int, name: str) -> int:
    """Return the seed of a part, so that two parts read the same rows in different orders."""
    return int(hashing.derive_keys(seed, PARTS_KEY, zlib.crc32(name.encode()))[0] >> 1)
