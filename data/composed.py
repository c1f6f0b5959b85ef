"""Batches from a user's own tf.data dataset of batches, or of texts.

B rows of a batch
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from data import batch_spec
from data.mixed_stream import MixedStream
from data.objectives.objective import Objective
from data.pipeline import Stream
from data.read_ahead import ENDLESS
from data.rows import hashing
from data.rows.crops import CropRows
from data.rows.tables import Batch, DocumentRows, WindowRows
from data.store.split import MixtureSource, Split
from data.tensorflow_import import check_tensorflow, import_tensorflow
from data.tf_dataset import make_options, raise_error, read_elements, store_error
from data.vocabulary.base import Vocabulary

COMPOSED_KEY = 4  # purpose of a key, after the purposes in data/pipeline.py


class ComposedBatches:
    """Training batches from a user's dataset of batches, checked against the batch spec."""

    def __init__(
        self, stream: Stream | MixedStream, make_dataset: Callable[[Stream, int, int, int], Any]
    ) -> None:
        """Open the dataset once, to check its elements.

        Args:
          make_dataset: (stream, start_step, lo, hi) -> tf.data.Dataset of rows [lo, hi) of the
            batches of steps start_step, start_step + 1, ...: one element a step,
            {key: [hi - lo, ...]}. It must be a function of its arguments alone, so that a stopped
            run continues with the batches that it would have read.

        Raises:
          ValueError: the objective is a mixture, the rows are on lanes, TensorFlow is not
            installed, or the elements do not match the batch spec.
        """
        check_tensorflow("a dataset of the user")
        if isinstance(stream, MixedStream):
            raise ValueError(
                "a dataset of the user replaces the batches of one objective, "
                "and data.objective is a mixture of several"
            )
        if stream.order == "lanes":
            raise ValueError(
                "rows on lanes continue from batch to batch, and the rows of a user's dataset "
                "do not: set data.objective.order=shuffled"
            )
        self.stream, self.data, self.make_dataset = stream, stream.data, make_dataset
        self.open_dataset(0, 0, self.data.batch_size)

    @property
    def streams(self) -> dict[str, ComposedBatches]:
        """{"": these batches}, as `Stream.streams`."""
        return {"": self}

    def open_dataset(self, start_step: int, lo: int, hi: int) -> Any:
        """Return the user's dataset; raise a ValueError unless it matches the batch spec."""
        dataset = self.make_dataset(self.stream, start_step, lo, hi)
        check_elements(dataset, self.stream.objective, hi - lo)
        return dataset

    def iterate_batches(
        self, start_step: int = 0, lo: int = 0, hi: int | None = None
    ) -> Iterator[Batch]:
        """Iterate over rows [lo, hi) of the batches of steps start_step, ..., and check each."""
        lo, hi = self.stream.slice_share(lo, hi)
        return self.check_batches(self.open_dataset(start_step, lo, hi), start_step, hi - lo)

    def check_batches(self, dataset: Any, start_step: int, num_rows: int) -> Iterator[Batch]:
        """Iterate over the batches of a dataset, and check each; raise a ValueError at its end."""
        steps_read = 0
        for batch in read_elements(dataset):
            batch_spec.check_batch(batch, self.stream.objective, num_rows, self.stream.vocabulary)
            yield batch
            steps_read += 1
        raise ValueError(
            f"the dataset that training reads ended before step {start_step + steps_read + 1:,}: "
            "end it with .repeat(), or set train.steps lower"
        )


def check_elements(dataset: Any, objective: Objective, num_rows: int) -> None:
    """Raise a ValueError that lists all differences unless elements are batches of `num_rows`."""
    expected, elements = batch_spec.compute_shapes(objective, num_rows), dataset.element_spec
    spelled = {key: f"{dtype}{list(shape)}" for key, (dtype, shape) in expected.items()}
    advice = f"A batch of {objective.name} is {spelled}"
    if not isinstance(elements, dict):
        raise ValueError(f"the dataset's elements are {elements}, not dicts of tensors. {advice}")
    wrong = [f"{key} is missing" for key in expected if key not in elements]
    wrong += [f"{key} is not in the batch spec" for key in elements if key not in expected]
    for key in expected.keys() & elements.keys():
        dtype, shape = expected[key]
        actual = elements[key]
        if actual.dtype.as_numpy_dtype != dtype.type or not actual.shape.is_compatible_with(shape):
            wrong.append(
                f"{key} is {actual.dtype.name}{actual.shape}, "
                f"expected {dtype}{list(shape)} for rows lo to hi"
            )
    if wrong:
        raise ValueError(f"the dataset's elements are not batches: {'; '.join(wrong)}. {advice}")


def encode_texts(texts: Any, vocabulary: Vocabulary, batch_size: int = 64) -> Any:
    """Return a tf.data.Dataset of the token ids, int32 [n], of each text of a dataset of strings.

    batch_size: number of texts that are encoded in one call.
    """
    tf = import_tensorflow("encode_texts")

    def encode_batch(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = vocabulary.encode_batch([text.decode() for text in texts.tolist()])
        lengths = np.array([len(text_ids) for text_ids in ids], np.int64)
        return np.fromiter(itertools.chain.from_iterable(ids), np.int32, lengths.sum()), lengths

    def make_ragged(texts: Any) -> Any:
        ids, lengths = tf.numpy_function(
            encode_batch, [texts], [np.int32, np.int64], stateful=False
        )
        return tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]
            tf.ensure_shape(ids, (None,)), tf.ensure_shape(lengths, (None,))
        )

    return (
        texts.batch(batch_size)
        .map(make_ragged)
        .unbatch()
        .map(lambda ids: tf.ensure_shape(ids, (None,)))
    )


def make_text_batches(
    rows: Any, stream: Stream, start_step: int = 0, lo: int = 0, hi: int | None = None
) -> Any:
    """Return a tf.data.Dataset of batches whose rows are a user's texts.

    Row i of step s is element stream.locate_rows(s) + i of `rows`, which is s * batch_size + i if
    the batch size has never changed. Its masks or spans are a function of the seed and of that
    number.

    Args:
      rows: tf.data.Dataset of token ids, int32 [n], without special tokens: the text of one row
        each, in the order of the run.
      stream: its objective, vocabulary, batch size and seed are used.
      start_step: first batch. The rows before it are read and dropped.

    Raises:
      ValueError: when the dataset is read, if the elements do not make one row each: they are too
        long, or the objective's rows consist of several texts.
    """
    tf, (lo, hi) = import_tensorflow("make_text_batches"), stream.slice_share(lo, hi)
    size, spec = stream.data.batch_size, batch_spec.compute_shapes(stream.objective, hi - lo)

    def build_batch(step: Any, tokens: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
        try:
            number_B = stream.locate_rows(int(step)) + np.arange(lo, hi)
            own_tokens, own_starts = tokens[starts[lo] : starts[hi]], starts[lo : hi + 1]
            key_B = hashing.derive_keys(stream.seed, COMPOSED_KEY, number_B)
            batch = build_rows(own_tokens, own_starts - starts[lo], stream, key_B)
            return [batch[key] for key in spec]
        except Exception as error:
            return raise_error(store_error(error))

    def make_batch(step: Any, ragged: Any) -> dict[str, Any]:
        if isinstance(ragged, tf.Tensor):  # all rows are known to have one length
            ragged = tf.RaggedTensor.from_tensor(ragged)
        tensors = tf.numpy_function(
            build_batch,
            [step, ragged.values, ragged.row_splits],
            [dtype for dtype, _ in spec.values()],
            stateful=False,
        )
        return {
            key: tf.ensure_shape(tensor, shape)
            for tensor, (key, (_, shape)) in zip(tensors, spec.items(), strict=True)
        }

    batches = rows.skip(stream.locate_rows(start_step)).ragged_batch(size, drop_remainder=True)
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(start_step, ENDLESS), batches)
    dataset = numbered.map(make_batch).prefetch(stream.data.prefetch)
    return dataset.with_options(make_options(tf))


def build_rows(tokens: np.ndarray, starts: np.ndarray, stream: Stream, key_B: np.ndarray) -> Batch:
    """Return the batch whose rows are the texts that begin at `starts` in `tokens`."""
    source = MixtureSource("composed", (0, len(key_B)), 1.0)
    split = Split(tokens, starts, starts, (source,))
    objective: Objective = stream.objective
    if objective.shuffled:
        raise ValueError(
            f"{objective.name}: the sentences of a text that is not from a token store are not "
            "known: set data.objective.shuffled=false, or prepare a store of the texts"
        )
    table, build = objective.make_rows(split, stream.vocabulary)
    if isinstance(table, WindowRows) and table.ends_D is None and not table.shared:
        least = table.width
    elif isinstance(table, DocumentRows | CropRows):
        least = 1
    else:
        raise ValueError(
            f"a row of {objective} is not made of one text: prepare a token store of the texts, "
            "or, for masked_lm, set data.objective.rows=documents"
        )
    lengths_B = np.diff(starts)
    is_long = lengths_B.max() > table.width and not isinstance(table, CropRows)
    if lengths_B.min() < least or is_long:
        wanted = f"{least:,}" if least == table.width else f"1 to {table.width:,}"
        raise ValueError(
            f"texts of {lengths_B.min():,} to {lengths_B.max():,} tokens do not make one row of "
            f"{objective} each: a row takes {wanted}. Cut them with .rebatch({table.width})"
        )
    return build(np.arange(len(key_B)), key_B)
