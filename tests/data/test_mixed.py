"""Mixtures of objectives: shares, the batches of each part, and errors."""

import dataclasses

import numpy as np
import pytest

from data.composed import ComposedBatches
from data.config import Data
from data.mixed import Mixed, MixedPart, count_positions, map_shapes
from data.mixed_stream import MixedStream, derive_seed, open_stream
from data.objectives import (
    CausalLm,
    Classification,
    MaskedNextToken,
    SpanCorruption,
    Text2Text,
)
from data.pipeline import Stream
from data.rows.mixture import strip_common_folders
from data.tf_dataset import read_elements

HYBRID = Mixed(
    (
        MixedPart("masked", MaskedNextToken(length=12, max_predictions=3), share=1),
        MixedPart("causal", CausalLm(length=20), share=3),
    )
)


@pytest.fixture
def stream(bytes_store):
    return open_stream(bytes_store, Data(objective=HYBRID, batch_size=8), seed=5)


def assert_equal_batches(one, other):
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])


def test_each_part_is_a_stream_of_its_own(stream, bytes_store):
    """A part's rows depend on the seed, its name and the step alone, not on its share or the other
    parts.
    """
    assert isinstance(stream, MixedStream)
    batch = stream.build_batch(3)
    assert {name: len(part["token_ids"]) for name, part in batch.items()} == {
        "masked": 2,
        "causal": 6,
    }
    for name, rows in (("masked", 2), ("causal", 6)):
        objective = next(part.objective for part in HYBRID.parts if part.name == name)
        alone = Stream(
            bytes_store, Data(objective=objective, batch_size=rows), seed=derive_seed(5, name)
        )
        assert_equal_batches(batch[name], alone.build_batch(3))
    only_shares = Mixed(tuple(dataclasses.replace(part, share=1) for part in HYBRID.parts[::-1]))
    other = open_stream(bytes_store, Data(objective=only_shares, batch_size=4), seed=5)
    assert_equal_batches(other.build_batch(3)["masked"], batch["masked"])


def test_two_parts_of_one_objective_read_the_rows_in_different_orders(bytes_store):
    twice = Mixed(tuple(MixedPart(name, CausalLm(length=20)) for name in ("one", "other")))
    stream = open_stream(bytes_store, Data(objective=twice, batch_size=8), seed=5)
    rows = [each.load_rows(np.arange(each.num_rows))[2] for each in stream.streams.values()]
    assert sorted(rows[0]) == sorted(rows[1]) == list(range(len(rows[0])))
    assert rows[0].tolist() != rows[1].tolist()
    assert 0 <= derive_seed(2**63 - 1, "one") < 2**63


def test_the_feed_is_a_dataset_of_nested_batches(stream):
    for step, element in zip((7, 8), read_elements(stream.make_dataset(7)), strict=False):
        for name, batch in stream.build_batch(step).items():
            assert_equal_batches(element[name], batch)


def test_a_run_goes_on_at_the_next_unread_row_of_each_part(bytes_store, stream):
    """After 4 steps of 8 rows and then 16 per step, each part continues at its next unread row."""
    place = stream.locate_rows(4)
    assert place == {"masked": 8, "causal": 24}
    wider = open_stream(bytes_store, Data(objective=HYBRID, batch_size=16), seed=5)
    wider.start_at_row(4, place)
    halves = [stream.build_batch(step) for step in (4, 5)]
    for name, batch in wider.build_batch(4).items():
        for key in batch:
            joined = np.concatenate([half[name][key] for half in halves])
            np.testing.assert_array_equal(batch[key], joined)
    assert wider.locate_rows(5) == {"masked": 12, "causal": 36}
    assert wider.unrecorded_parts == []
    for rows, place in (
        (32, {"masked": 0, "causal": 0}),
        ({"causal": 9}, {"masked": 0, "causal": 9}),
    ):
        wider.start_at_row(
            4, rows
        )  # of a run without parts, or with other parts: an unknown part starts at its first row
        assert wider.locate_rows(4) == place
        assert wider.unrecorded_parts == [name for name in place if not place[name]]
    wider.start_at_row(0, 0)
    assert wider.unrecorded_parts == []


def test_a_part_is_scored_in_batches_of_as_many_positions_as_the_whole(bytes_store):
    """A batch has 2 x 12 + 6 x 20 = 144 positions: 6 times the masked rows fit, and the causal rows
    once.
    """
    data = Data(objective=HYBRID, batch_size=8)
    stream = open_stream(bytes_store, data, split="heldout", for_evaluation=True)
    sizes = {name: part.data.batch_size for name, part in stream.streams.items()}
    assert sizes == {"masked": 12, "causal": 6}
    for name, part in stream.streams.items():
        assert len(part.build_evaluation_batch(0)["token_ids"]) == sizes[name]
    assert stream.num_rows == sum(part.num_rows for part in stream.streams.values())


def test_shapes_are_those_of_the_parts(stream):
    shapes = map_shapes(lambda shape, dtype: (shape, dtype), HYBRID, 8)
    found = {
        name: {key: (value.shape, value.dtype) for key, value in part.items()}
        for name, part in stream.build_batch(0).items()
    }
    assert found == shapes
    assert count_positions(HYBRID, 8) == 2 * 12 + 6 * 20
    ul2 = Mixed(tuple(MixedPart(name, SpanCorruption(inputs=64)) for name in "ab"))
    assert count_positions(ul2, 4) == 4 * (64 + SpanCorruption(inputs=64).target_length)


def test_shares_become_whole_rows_or_are_refused():
    thirds = Mixed(tuple(MixedPart(name, CausalLm(), share=1 / 3) for name in "abc"))
    assert thirds.count_part_rows(9) == {"a": 3, "b": 3, "c": 3}
    with pytest.raises(ValueError, match="batch_size=8 gives the parts .* a 2.66667, b 2.66667"):
        thirds.count_part_rows(8)
    with pytest.raises(ValueError, match="must be whole numbers"):
        Mixed((MixedPart("a", CausalLm(), 1e-9), MixedPart("b", CausalLm()))).count_part_rows(8)
    with pytest.raises(ValueError, match="must be whole numbers"):
        thirds.count_part_rows(1_000_000)  # three thirds are 999,999 rows
    assert HYBRID.compute_loss_weights() == {"masked": 0.25, "causal": 0.75}
    weighted = dataclasses.replace(HYBRID.parts[0], loss_weight=2.0)
    assert Mixed((weighted, HYBRID.parts[1])).compute_loss_weights() == {
        "masked": 2.0,
        "causal": 0.75,
    }


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "at least two parts, with different names, here none"),
        ((MixedPart("a", CausalLm()),), "at least two parts"),
        ((MixedPart("a", CausalLm()),) * 2, "different names, here a, a"),
        ((MixedPart("a", CausalLm()), MixedPart("B", CausalLm())), "the part 'B'"),
        ((MixedPart("a", CausalLm()), MixedPart("b/c", CausalLm())), "small letters"),
        ((MixedPart("a", CausalLm()), MixedPart("b", CausalLm(), share=0)), "b: share=0"),
        ((MixedPart("a", CausalLm()), MixedPart("b", CausalLm(), share=float("nan"))), "b: share=nan"),
        ((MixedPart("a", CausalLm()), MixedPart("b", CausalLm(), loss_weight=-1)), "b: loss_weight=-1"),
        (tuple(MixedPart(name, CausalLm(), loss_weight=0.0) for name in "ab"), "above 0"),
        ((MixedPart("a", CausalLm()), MixedPart("loss", CausalLm())), "not one of loss, perplexity"),
        ((MixedPart("a", CausalLm()), "b"), "are MixedParts, not"),
        ((MixedPart("a", CausalLm()), MixedPart("b", Classification())), "b learns from labelled"),
        ((MixedPart("a", CausalLm()), MixedPart("b", Text2Text())), "b learns from labelled"),
        (tuple(MixedPart(f"a{i}", CausalLm()) for i in range(33)), "33 parts: at most 32"),
        ((MixedPart("a", CausalLm()), MixedPart("b", CausalLm(order="lanes"))), "b: order=lanes"),
    ],
)  # fmt: skip
def test_parts_that_make_no_mixture_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Mixed(parts)


def test_a_dataset_of_the_user_replaces_one_objective(stream):
    with pytest.raises(ValueError, match=r"data\.objective is a mixture"):
        ComposedBatches(stream, lambda *_: None)


def test_names_of_sources_lose_the_folders_that_all_have():
    assert strip_common_folders(["/a/b/c", "/a/b/d/e"]) == ["c", "d/e"]
    assert strip_common_folders(["a/b", "a/b/c"]) == ["b", "b/c"]
    assert strip_common_folders(["a/b", "a/b"]) == ["b", "b"]
    assert strip_common_folders(["a/b"]) == ["a/b"]
    assert strip_common_folders(["gs://x/a", "y"]) == ["gs://x/a", "y"]
