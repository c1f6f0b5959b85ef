"""Rows of pairs: each pair is whole in one row, source next to target; pairs that do not fit are
skipped and counted.
"""

import itertools
from collections import Counter

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.objectives import Seq2Seq
from data.pipeline import Stream
from data.rows import hashing

WIDTHS = dict(length=24, target_length=18)  # targets of 18 to 20 tokens do not fit


def make_stream(store, split="train", **fields):
    return Stream(
        store, Data(objective=Seq2Seq(**WIDTHS), batch_size=8, **fields), split=split, seed=3
    )


SIDES = (("encoder_token_ids", "encoder_segment_ids"), ("labels", "decoder_segment_ids"))


def pairs_of(split):
    edges = split.sentence_starts.tolist()
    texts = [tuple(split.tokens[a:b].tolist()) for a, b in itertools.pairwise(edges)]
    return list(zip(texts[::2], texts[1::2]))


def unpack_pairs(batch, vocabulary):
    """Return the (source, target) pairs of all rows, position by position."""
    pairs = []
    for i in range(len(batch["encoder_token_ids"])):
        sides = []
        for ids, segments in SIDES:
            parts, current = [], []
            for token, segment in zip(batch[ids][i].tolist(), batch[segments][i].tolist()):
                assert segment == (len(parts) + 1 if segment else 0)
                assert (token == vocabulary.pad) == (segment == 0) and (segment or not current)
                if token == vocabulary.eos:
                    parts, current = [*parts, tuple(current)], []
                elif segment:
                    current.append(token)
            assert not current
            sides.append(parts)
        pairs += zip(*sides, strict=True)
    return pairs


def test_each_pair_is_once_in_an_epoch(pair_store):
    """The pairs of the first source are distinct, so its epochs can be separated; rows are as full
    as consecutive pairs allow.
    """
    made = make_stream(pair_store, rates=(1.0, 0.0))
    split = pair_store.open_split("train")
    expected = Counter(
        pair for pair in pairs_of(split)[:30] if len(pair[0]) < 24 and len(pair[1]) < 18
    )
    rows = int(made.rows_S[0])
    assert rows > 8 and len(expected) < 30
    seen = [
        unpack_pairs(
            made.build(*made.draw_keys(np.arange(n * rows, (n + 1) * rows))), pair_store.vocabulary
        )
        for n in range(3)
    ]
    assert all(Counter(epoch) == expected for epoch in seen) and seen[0] != seen[1]
    assert (
        made.table.num_skipped_pairs == sum(len(target) > 17 for _, target in pairs_of(split)) > 0
    )


def test_rows_are_filled(pair_store):
    """The next pair does not fit on at least one side, and a row has pairs of one source only."""
    made = make_stream(pair_store)
    rows = np.arange(made.num_rows)
    batch = made.build(rows, hashing.derive_keys(0, rows))
    batch_spec.check_batch(batch, made.objective, made.num_rows)
    used = np.stack([(batch[segments] > 0).sum(axis=1) for _, segments in SIDES], axis=1)
    first = np.stack([(batch[segments] == 1).sum(axis=1) for _, segments in SIDES], axis=1)
    full = (used[:-1] + first[1:] > (24, 18)).any(axis=1)
    ends = np.flatnonzero(~full)  # at most the last row of the first source
    assert set(ends.tolist()) <= {int(made.rows_S[0]) - 1}
    assert unpack_pairs(batch, pair_store.vocabulary) == [
        p for p in pairs_of(made.split) if len(p[1]) < 18
    ]
    np.testing.assert_array_equal(batch["label_weights"] > 0, batch["decoder_segment_ids"] > 0)
    np.testing.assert_array_equal(batch["encoder_attention_mask"], batch["encoder_segment_ids"] > 0)
    assert batch["encoder_segment_ids"].max() > 1


def test_evaluation_is_every_pair_once(pair_store):
    made = make_stream(pair_store, "heldout")
    seen = []
    for i in range(made.num_evaluation_batches):
        batch = made.build_evaluation_batch(i)
        real = batch["label_weights"].any(axis=1)
        seen += unpack_pairs(
            {key: value[real] for key, value in batch.items()}, pair_store.vocabulary
        )
    assert seen == [pair for pair in pairs_of(made.split) if len(pair[1]) < 18]


def test_refusals(pair_store, t5_store, store):
    for options, message in (
        ({"length": 1}, "length=1, target_length=256; a row holds at least a token and its </s>, so 2 tokens"),
        ({"target_length": 2}, "no pair fits into rows of 256 and 2 tokens; the shortest sides are 9 and 6"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Stream(pair_store, Data(objective=Seq2Seq(**options)), split="heldout")
    with pytest.raises(
        ValueError,
        match="its documents are not pairs of a source and a target: `prepare --document pair`",
    ):
        Stream(t5_store, Data(objective=Seq2Seq()))
    with pytest.raises(ValueError, match=r"seq2seq needs the special token\(s\) eos"):
        Stream(store, Data(objective=Seq2Seq()))


# ---- inspect ---------------------------------------------------------------------


def swap_sources(batch):
    batch["encoder_token_ids"][:, :2] = batch["encoder_token_ids"][:, 1::-1].copy()


def swap_targets(batch):
    for key in ("labels", "decoder_segment_ids", "label_weights"):
        batch[key] = np.roll(batch[key], 1, axis=0)


def lose_on_padding(batch):
    batch["label_weights"][:] = 1


def clear_segment(batch):
    batch["encoder_segment_ids"][0, 0] = 0


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (None, None),
        (swap_sources, "pairs that are not the store's, each side and </s>"),
        (swap_targets, "pairs that are not the store's, each side and </s>"),
        (lose_on_padding, "tokens without loss, losses on padding"),
        (clear_segment, "tokens in padding, padding between tokens"),
    ],
)
def test_inspect(pair_store, damage, name):
    made = make_stream(pair_store)
    if damage:
        build = made.build

        def build_damaged(row_B, key_B):
            batch = build(row_B, key_B)
            damage(batch)
            return batch

        made.build = build_damaged
    report = inspect_batches(made, batches=2, rows=1)
    failed = [check["name"] for check in report["checks"] if not check["passed"]]
    assert (name in failed) if damage else not failed
    assert report["rows"][0]["inputs"][-1] == " </s>"
