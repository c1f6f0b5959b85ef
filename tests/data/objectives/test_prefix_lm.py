"""Prefix LM: the two parts of a row together are the text, each split point is equally likely, and
each part ends with its token.
"""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import PrefixLm
from data.pipeline import Stream
from data.rows import hashing


def test_parts_are_those_of_the_slow_reference(t5_store):
    stream = Stream(t5_store, Data(objective=PrefixLm(length=12), batch_size=4))
    rows = np.arange(stream.num_rows)
    batch = stream.build(rows, hashing.derive_keys(1, rows))
    batch_spec.check_batch(batch, stream.objective, stream.num_rows)
    eos, pad = t5_store.vocabulary.eos, t5_store.vocabulary.pad
    for i, start in enumerate(stream.table.locate_starts(rows).tolist()):
        text = stream.split.tokens[start : start + 12].tolist()
        cut = int(batch["encoder_attention_mask"][i].sum()) - 1
        assert 1 <= cut <= 11
        for key, mask, part in (
            ("encoder_token_ids", "encoder_attention_mask", text[:cut]),
            ("labels", "label_weights", text[cut:]),
        ):
            expected = [*part, eos]
            assert batch[key][i].tolist() == expected + [pad] * (12 - len(expected))
            assert batch[mask][i].astype(int).tolist() == [1] * len(expected) + [0] * (
                12 - len(expected)
            )


def test_all_split_points_are_equally_likely(t5_store):
    stream = Stream(t5_store, Data(objective=PrefixLm(length=6), batch_size=4))
    batch = stream.build(np.zeros(20_000, np.int64), hashing.derive_keys(2, np.arange(20_000)))
    counts = np.bincount(batch["encoder_attention_mask"].sum(axis=1) - 1, minlength=7)
    assert counts[0] == counts[6] == 0
    assert ((counts[1:6] - 4000) ** 2 / 4000).sum() < 18.5  # chi-square, 4 degrees, p = 0.001


def test_refusals(t5_store, store):
    with pytest.raises(
        ValueError, match="length=1; a text that is cut in two has at least 2 tokens"
    ):
        Stream(t5_store, Data(objective=PrefixLm(length=1)))
    with pytest.raises(ValueError, match=r"prefix_lm needs the special token\(s\) eos"):
        Stream(store, Data(objective=PrefixLm()))
