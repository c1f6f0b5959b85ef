"""A dataset of the user replaces the store's: it is checked against the batch spec and works on any
number of hosts.
"""

import contextlib
import itertools

import numpy as np
import pytest

from data import batch_spec
from data.composed import ComposedBatches, encode_texts, make_text_batches
from data.config import Data
from data.objectives import CausalLm, Denoising, MaskedLm, PrefixLm, SentencePair, SpanCorruption
from data.pipeline import Stream
from data.tensorflow_import import import_tensorflow
from data.tf_dataset import read_elements

MASKED = MaskedLm(length=22, max_predictions=4, rows="documents")


@pytest.fixture(scope="module")
def stream(store):
    return Stream(store, Data(objective=MASKED, batch_size=8), seed=3)


def take_batches(batches, count):
    with contextlib.closing(batches):
        return list(itertools.islice(batches, count))


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype
        np.testing.assert_array_equal(one[key], other[key])


def of_store(stream, start_step, lo, hi):
    return stream.make_dataset(start_step, lo, hi)


# ---- a function of the user ----------------------------------------------------


def test_the_store_s_own_dataset_gives_its_own_batches(stream):
    composed = ComposedBatches(stream, of_store)
    for step, batch in enumerate(take_batches(composed.iterate_batches(7, 2, 6), 3), 7):
        assert_equal(batch, stream.build_batch(step, 2, 6))


def test_a_map_of_the_user_is_what_is_read(stream):
    weights = next(key for key in stream.build_batch(0) if key.endswith("weights"))

    def halve_weights(stream, start_step, lo, hi):
        return stream.make_dataset(start_step, lo, hi).map(
            lambda batch: batch | {weights: batch[weights] / 2}
        )

    (batch,) = take_batches(ComposedBatches(stream, halve_weights).iterate_batches(4), 1)
    expected = stream.build_batch(4)
    assert_equal(batch, expected | {weights: expected[weights] / 2})


def test_one_error_lists_all_that_differs_from_the_batch_spec(stream):
    tf = import_tensorflow()
    first, second, third, *_ = batch_spec.compute_shapes(MASKED, 8)

    def make_wrong_dataset(stream, start_step, lo, hi):
        def change_batch(batch):
            return {
                key: tensor
                for key, tensor in (
                    batch
                    | {
                        first: tf.cast(batch[first], tf.int64),
                        second: batch[second][:, 1:],
                        "text": batch[first],
                    }
                ).items()
                if key != third
            }

        return stream.make_dataset(start_step, lo, hi).map(change_batch)

    with pytest.raises(ValueError, match="the dataset's elements are not batches: ") as caught:
        ComposedBatches(stream, make_wrong_dataset)
    message = str(caught.value)
    for part in (
        f"{first} is int64(8, 22), expected int32[8, 22]",
        f"{second} is ",
        "(8, 21), expected ",
        "text is not in the batch spec",
        f"{third} is missing",
        "A batch of masked_lm is {",
    ):
        assert part in message
    with pytest.raises(ValueError, match="not dicts of tensors"):
        ComposedBatches(stream, lambda *_: tf.data.Dataset.range(3))


def test_errors_of_single_batches_are_raised_when_they_are_read(stream):
    tf = import_tensorflow()
    ids = next(iter(batch_spec.compute_shapes(MASKED, 8)))

    def exceed_vocabulary(stream, start_step, lo, hi):
        return stream.make_dataset(start_step, lo, hi).map(
            lambda batch: batch | {ids: batch[ids] + stream.vocabulary.size}
        )

    def drop_shape(stream, start_step, lo, hi):
        def cut_ids(batch):
            (part,) = tf.numpy_function(lambda x: [x[:, 1:]], [batch[ids]], [tf.int32])
            return batch | {ids: part}

        return stream.make_dataset(start_step, lo, hi).map(cut_ids)

    with pytest.raises(ValueError, match=f"{ids} holds the id .* but the vocabulary has the ids"):
        next(ComposedBatches(stream, exceed_vocabulary).iterate_batches())
    with pytest.raises(ValueError, match=rf"{ids} is int32\[8, 21\]"):
        next(ComposedBatches(stream, drop_shape).iterate_batches())


def test_a_dataset_that_ends_too_early_is_an_error(stream):
    composed = ComposedBatches(stream, lambda stream, *args: stream.make_dataset(*args).take(2))
    batches = composed.iterate_batches(5)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(ValueError, match=r"ended before step 8: end it with .repeat\(\)"):
        next(batches)


# ---- texts ----------------------------------------------------------------------


def make_strings(texts):
    return import_tensorflow().data.Dataset.from_tensor_slices(list(texts))


def test_texts_are_encoded_as_the_vocabulary_does_it(vocabulary, texts):
    found = take_batches(
        read_elements(encode_texts(make_strings(texts[:150]), vocabulary, batch_size=64)), 999
    )
    assert [row.tolist() for row in found] == vocabulary.encode_batch(texts[:150])
    assert {row.dtype for row in found} == {np.dtype(np.int32)}
    (empty,) = take_batches(read_elements(encode_texts(make_strings([""]), vocabulary)), 9)
    assert empty.shape == (0,)


@pytest.fixture(scope="module")
def composed(store, t5_store, texts):
    """Return {name: (stream, dataset function)}: the same texts as rows of two objectives."""

    def define_dataset(width):
        def make_dataset(stream, start_step, lo, hi):
            ids = encode_texts(make_strings(texts), stream.vocabulary).repeat()
            return make_text_batches(
                ids.rebatch(width, drop_remainder=True), stream, start_step, lo, hi
            )

        return make_dataset

    spans = SpanCorruption(inputs=40)
    return {
        "masked": (Stream(store, Data(objective=MASKED, batch_size=8), seed=3), define_dataset(20)),
        "spans": (
            Stream(t5_store, Data(objective=spans, batch_size=8), seed=3),
            define_dataset(spans.raw_length),
        ),
    }


@pytest.mark.parametrize("name", ["masked", "spans"])
@pytest.mark.slow
def test_batches_of_texts_are_pure_through_restarts_and_hosts(composed, name):
    stream, make = composed[name]
    source = ComposedBatches(stream, make)
    whole = take_batches(source.iterate_batches(0), 6)
    for batch in whole:
        batch_spec.check_batch(batch, stream.objective, 8, stream.vocabulary)
    for start in (1, 4):
        for lo, hi in ((0, 8), (2, 4), (4, 8)):
            for step, part in enumerate(
                take_batches(source.iterate_batches(start, lo, hi), 2), start
            ):
                assert_equal(part, {key: array[lo:hi] for key, array in whole[step].items()})


def test_rows_are_the_texts_and_masks_are_new_in_each_epoch(composed, texts):
    """Row i of step s is element 8 s + i; the masks of a text differ when it is repeated."""
    stream, _ = composed["masked"]
    ids = np.concatenate(stream.vocabulary.encode_batch(texts))
    count = len(ids) // 20 // 8 * 8  # whole batches, so that the second epoch begins with one

    def make_dataset(stream, start_step, lo, hi):
        rows = encode_texts(make_strings(texts), stream.vocabulary).rebatch(20, drop_remainder=True)
        return make_text_batches(rows.take(count).repeat(), stream, start_step, lo, hi)

    batches = take_batches(ComposedBatches(stream, make_dataset).iterate_batches(0), 2 * count // 8)
    tokens, _, positions, labels, weights = (
        np.concatenate([batch[key] for batch in batches])
        for key in batch_spec.compute_shapes(MASKED, 8)
    )
    restored = tokens.copy()
    for i, j in zip(*np.nonzero(weights), strict=True):
        restored[i, positions[i, j]] = labels[i, j]
    np.testing.assert_array_equal(restored[:count, 1:-1].ravel(), ids[: count * 20])
    np.testing.assert_array_equal(restored[:count], restored[count:])
    same = (positions[:count] == positions[count:]).all(axis=1)
    assert same.mean() < 0.1


def test_texts_that_make_no_row_each_are_refused(composed, store, texts):
    stream, _ = composed["masked"]

    def make_batch(rows, stream):
        return next(
            ComposedBatches(
                stream, lambda _, *args: make_text_batches(rows, stream, *args)
            ).iterate_batches()
        )

    long = encode_texts(make_strings(texts), stream.vocabulary).repeat().rebatch(50)
    with pytest.raises(
        ValueError, match=r"texts of 50 to 50 tokens .*: a row takes 1 to 20\. .*\.rebatch\(20\)"
    ):
        make_batch(long, stream)
    packed = Stream(store, Data(objective=MaskedLm(length=22, max_predictions=4), batch_size=8))
    short = encode_texts(make_strings(texts), stream.vocabulary).rebatch(5)
    with pytest.raises(
        ValueError, match="not made of one text.* set data.objective.rows=documents"
    ):
        make_batch(short, packed)
    pairs = Stream(store, Data(objective=SentencePair(length=30, max_predictions=5), batch_size=8))
    with pytest.raises(ValueError, match="a row of SentencePair.* is not made of one text"):
        make_batch(short, pairs)


@pytest.mark.parametrize("shuffled", [True, False])
def test_the_sentences_of_a_text_are_not_known(bytes_store, texts, shuffled):
    objective = Denoising(length=22, shuffled=shuffled)
    stream = Stream(bytes_store, Data(objective=objective, batch_size=8))

    def make_dataset(stream, *share):
        rows = encode_texts(make_strings(texts), stream.vocabulary).repeat().rebatch(20)
        return make_text_batches(rows, stream, *share)

    batches = ComposedBatches(stream, make_dataset).iterate_batches()
    if not shuffled:
        assert len(next(batches)["labels"]) == 8
        return
    with pytest.raises(ValueError, match=r"sentences of a text .*data\.objective\.shuffled=false"):
        next(batches)


def test_an_error_of_a_row_s_text_is_raised_as_it_was(composed):
    stream, _ = composed["masked"]
    rows = import_tensorflow().data.Dataset.from_tensors(
        np.full(20, stream.vocabulary.size, np.int32)
    )
    with pytest.raises(ValueError, match=r"^the token store holds the id 96, but its vocabulary"):
        next(
            ComposedBatches(
                stream, lambda stream, *args: make_text_batches(rows.repeat(), stream, *args)
            ).iterate_batches()
        )


@pytest.mark.parametrize(
    ("objective", "length", "message"),
    [
        (SpanCorruption(inputs=40), 40, "texts of 40 to 40 tokens .*a row takes 44"),
        (PrefixLm(length=22), 21, "texts of 21 to 21 tokens .*a row takes 22"),
        (CausalLm(length=22), 21, "is not made of one text"),
    ],
)
def test_texts_of_a_nearby_length_are_refused(t5_store, texts, objective, length, message):
    """They have as many tokens as so many rows, which would begin within other texts."""
    stream = Stream(t5_store, Data(objective=objective, batch_size=4))

    def make_dataset(stream, *share):
        rows = encode_texts(make_strings(texts), stream.vocabulary).repeat().rebatch(length)
        return make_text_batches(rows, stream, *share)

    with pytest.raises(ValueError, match=message):
        next(ComposedBatches(stream, make_dataset).iterate_batches())


def test_a_long_text_does_not_make_up_for_an_empty_one(composed):
    stream, _ = composed["masked"]
    tf = import_tensorflow()
    lengths = [0, 40, *[20] * 6]
    rows = tf.data.Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(np.full(sum(lengths), 10, np.int32), lengths)
    )
    with pytest.raises(ValueError, match="texts of 0 to 40 tokens do not make one row"):
        next(
            ComposedBatches(
                stream, lambda stream, *share: make_text_batches(rows.repeat(), stream, *share)
            ).iterate_batches()
        )
