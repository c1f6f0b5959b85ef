"""The batches of a mixture of objectives: a stream for each part, which reads all rows of the source in an order of its own.

Part p of the batch of step s is a function of (seed, p's name, s), whatever the other parts are.
"""

import dataclasses
import zlib

from data.mixed import Mixed, count_positions
from data.pipeline import Stream
from data.rows import hashing

PARTS = 5  # what a key is for, behind the uses of data/pipeline.py and data/composed.py


def open_stream(source, data, *, split="train", seed=0, evaluates=False):
    """Return the `Stream` of one split of a source, or the `MixedStream` where the objective is a mixture. Raises ValueError.

    evaluates: as of `MixedStream`.
    """
    if isinstance(data.objective, Mixed):
        return MixedStream(source, data, split=split, seed=seed, evaluates=evaluates)
    return Stream(source, data, split=split, seed=seed)


class MixedStream:
    """The streams of a mixture, by the names of its parts. It has what a `Stream` has, as far as a trainer asks for it.

    rows  of all parts together: each of them reads the whole split
    """

    def __init__(self, source, data, *, split="train", seed=0, evaluates=False):
        """As a `Stream`. evaluates: the parts are scored one after the other, and so each in batches of as many positions as the whole."""
        self.data, self.objective, self.seed = data, data.objective, seed
        rows = data.objective.rows(data.batch_size)
        if evaluates:
            positions = count_positions(data.objective, data.batch_size)
            for part in data.objective.parts:
                own = count_positions(part.objective, rows[part.name])
                rows[part.name] *= positions // own  # a multiple, so that it divides over a mesh
        self.streams = {
            part.name: Stream(
                source,
                dataclasses.replace(data, objective=part.objective, batch_size=rows[part.name]),
                split=split,
                seed=derive_seed(seed, part.name),
            )
            for part in data.objective.parts
        }
        first = next(iter(self.streams.values()))
        self.name, self.split, self.vocabulary = first.name, first.split, first.vocabulary
        self.rows = sum(stream.rows for stream in self.streams.values())
        self.unrecorded: list[str] = []

    def begin_from(self, step, row):
        """Let the batch of `step` begin, in each part, with the example that `row` has for it: {part: number}.

        A number alone, of a run that had one objective before, is of no part. A part without a number begins with its first example; its
        name is then among those of `unrecorded`.
        """
        places = row if isinstance(row, dict) else {}
        self.unrecorded = [name for name in self.streams if step and name not in places]
        for name, stream in self.streams.items():
            stream.begin_from(step, places.get(name, 0))

    def place(self, step):
        """Return {part: the number of its examples that the steps before this one have read}."""
        return {name: stream.place(step) for name, stream in self.streams.items()}

    def batch(self, step):
        """Return {part: its batch}, as `Stream.batch` gives it."""
        return {name: stream.batch(step) for name, stream in self.streams.items()}

    def dataset(self, start_step=0):
        """Return a tf.data.Dataset of `batch(step)` for step = start_step, start_step + 1, ... without end."""
        from data.tf_dataset import import_tensorflow

        datasets = {name: stream.dataset(start_step) for name, stream in self.streams.items()}
        return import_tensorflow().data.Dataset.zip(datasets)


def split_stream(stream):
    """Return {part: stream} of a mixture, {"": stream} of any other."""
    return stream.streams if isinstance(stream, MixedStream) else {"": stream}


def derive_seed(seed, name) -> int:
    """Return the seed of a part, so that two parts read the same rows in different orders."""
    return int(hashing.key(seed, PARTS, zlib.crc32(name.encode()))[0] >> 1)
