"""Batches from datasets of the user: checked against the batch spec, and made of texts that tf.data or TFDS reads.

B rows of a batch
"""

import itertools

import numpy as np

from data import batch_spec
from data.mixed_stream import MixedStream
from data.rows import hashing
from data.rows.tables import DocumentRows, WindowRows
from data.store.split import Source, Split
from data.tf_dataset import (
    ENDLESS,
    import_tensorflow,
    keep_error,
    make_options,
    raise_error,
    read_elements,
)

COMPOSED = 4  # what a key is for, behind the uses of data/pipeline.py


class ComposedBatches:
    """Training batches from a dataset of the user, checked against the batch spec.

    make_dataset: (stream, start_step, lo, hi) -> tf.data.Dataset of rows [lo, hi) of the batches of steps start_step,
    start_step + 1, ...: one element a step, {key: [hi - lo, ...]}. It must be a function of its arguments alone, so that
    a run that is stopped goes on with the batches that it would have read.
    """

    def __init__(self, stream, make_dataset):
        """stream: the `data.pipeline.Stream` that the batches stand in for. Raises ValueError for elements of another kind."""
        if isinstance(stream, MixedStream):
            raise ValueError(
                "a dataset of the user stands in for the batches of one objective, and data.objective is a mixture of several"
            )
        if stream.order == "lanes":
            raise ValueError(
                "rows on lanes go on from batch to batch, which a dataset of the user does not: data.objective.order=shuffled"
            )
        self.stream, self.data, self.make_dataset = stream, stream.data, make_dataset
        self.open(0, 0, self.data.batch_size)

    def open(self, start_step, lo, hi):
        """Return the user's dataset. Raises ValueError unless its elements are what the batch spec says."""
        dataset = self.make_dataset(self.stream, start_step, lo, hi)
        check_elements(dataset, self.stream.objective, hi - lo)
        return dataset

    def batches(self, start_step=0, lo=0, hi=None):
        """Iterate over rows [lo, hi) of the batches of steps start_step, ..., each of them checked."""
        lo, hi = self.stream.share(lo, hi)
        return self.read(self.open(start_step, lo, hi), start_step, hi - lo)

    def read(self, dataset, start_step, rows):
        steps_read = 0
        for batch in read_elements(dataset):
            batch_spec.check(batch, self.stream.objective, rows, self.stream.vocabulary)
            yield batch
            steps_read += 1
        raise ValueError(
            f"the dataset that training reads ended before step {start_step + steps_read + 1:,}: end it with .repeat(), "
            "or set train.steps lower"
        )


def check_elements(dataset, objective, rows):
    """Raise a ValueError that names all that differs, unless a dataset's elements are batches of `rows` rows."""
    expected, found = batch_spec.shapes(objective, rows), dataset.element_spec
    advice = f"A batch of {objective.name} is { {key: f'{dtype}{list(shape)}' for key, (dtype, shape) in expected.items()} }"
    if not isinstance(found, dict):
        raise ValueError(f"the dataset's elements are {found}, not dicts of tensors. {advice}")
    wrong = [f"{key} is missing" for key in expected if key not in found]
    wrong += [f"{key} is not in the batch spec" for key in found if key not in expected]
    for key in expected.keys() & found.keys():
        dtype, shape = expected[key]
        seen = found[key]
        if seen.dtype.as_numpy_dtype != dtype.type or not seen.shape.is_compatible_with(shape):
            wrong.append(
                f"{key} is {seen.dtype.name}{seen.shape}, expected {dtype}{list(shape)} for rows lo to hi"
            )
    if wrong:
        raise ValueError(f"the dataset's elements are no batches: {'; '.join(wrong)}. {advice}")


def encode_texts(texts, vocabulary, together=64):
    """Return a tf.data.Dataset of the token ids, int32 [n], of each text of a dataset of strings."""
    tf = import_tensorflow()

    def encode(texts):
        ids = vocabulary.encode_batch([text.decode() for text in texts.tolist()])
        lengths = np.array([len(one) for one in ids], np.int64)
        return np.fromiter(itertools.chain.from_iterable(ids), np.int32, lengths.sum()), lengths

    def ragged(texts):
        ids, lengths = tf.numpy_function(encode, [texts], [np.int32, np.int64], stateful=False)
        return tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]
            tf.ensure_shape(ids, (None,)), tf.ensure_shape(lengths, (None,))
        )

    return (
        texts.batch(together).map(ragged).unbatch().map(lambda ids: tf.ensure_shape(ids, (None,)))
    )


def batches_from(rows, stream, start_step=0, lo=0, hi=None):
    """Return a tf.data.Dataset of batches whose rows are the elements of another, masked or corrupted as the objective says.

    Args:
      rows: tf.data.Dataset of token ids, int32 [n], without special tokens: the text of one row each, in the order of the run.
      stream: a `data.pipeline.Stream`, whose objective, vocabulary, batch size and seed are used.
      start_step: of the first batch. The rows before it are read and thrown away.
      lo, hi: the rows of each batch that are built.

    Row i of step s is element stream.place(s) + i of `rows`, s * batch_size + i where the batch size has always been the same; what is drawn for it is a function of the seed and of that number.
    Raises ValueError, when it is read, where the elements do not make one row each: they are longer, or the objective's rows
    are made of several texts.
    """
    tf, (lo, hi) = import_tensorflow(), stream.share(lo, hi)
    size, spec = stream.data.batch_size, batch_spec.shapes(stream.objective, hi - lo)

    def build(step, tokens, starts):
        try:
            number_B = stream.place(int(step)) + np.arange(lo, hi)
            part = tokens[starts[lo] : starts[hi]], starts[lo : hi + 1] - starts[lo]
            batch = build_rows(*part, stream, hashing.key(stream.seed, COMPOSED, number_B))
            return [batch[key] for key in spec]
        except Exception as error:
            return raise_error(keep_error(error))

    def make_batch(step, ragged):
        if isinstance(ragged, tf.Tensor):  # of rows that are known to be of one length
            ragged = tf.RaggedTensor.from_tensor(ragged)
        tensors = tf.numpy_function(
            build,
            [step, ragged.values, ragged.row_splits],
            [dtype for dtype, _ in spec.values()],
            stateful=False,
        )
        return {
            key: tf.ensure_shape(tensor, shape)
            for tensor, (key, (_, shape)) in zip(tensors, spec.items(), strict=True)
        }

    batches = rows.skip(stream.place(start_step)).ragged_batch(size, drop_remainder=True)
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(start_step, ENDLESS), batches)
    dataset = numbered.map(make_batch).prefetch(stream.data.prefetch)
    return dataset.with_options(make_options(tf))


def build_rows(tokens, starts, stream, key_B):
    """Return the batch whose rows are the texts that begin at `starts` in `tokens`, each of them one row."""
    source = Source("composed", (0, len(key_B)), 1.0)
    split = Split(tokens, starts, starts, (source,))
    table, build = stream.objective.examples(split, stream.vocabulary)
    if not isinstance(table, DocumentRows | WindowRows):
        raise ValueError(
            f"a row of {stream.objective} is not made of one text: prepare a token store of the texts, or, for masked_lm, set "
            "data.objective.rows=documents"
        )
    if table.count != len(key_B):
        lengths = np.diff(starts)
        raise ValueError(
            f"{len(key_B)} texts of {lengths.min()} to {lengths.max()} tokens make {table.count} rows of {stream.objective}: "
            "each must make one. Cut them with .rebatch(tokens of a row)"
        )
    return build(np.arange(len(key_B)), key_B)
