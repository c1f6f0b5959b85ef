"""Masked next-token prediction: rows equal a slow reference's, and positions are one before
the masked tokens.
"""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import CausalLm, MaskedNextToken
from data.pipeline import Stream
from tests.data.objectives.test_causal_lm import slow_rows


@pytest.fixture
def stream(bytes_store):
    objective = MaskedNextToken(length=20, max_predictions=6, mask_rate=0.3)
    return Stream(bytes_store, Data(objective=objective, batch_size=16), seed=3)


def test_each_masked_word_is_predicted_at_the_position_before_it(stream, bytes_store):
    vocabulary, table = bytes_store.vocabulary, stream.table
    joined = [
        text
        for source in stream.split.sources
        for d in range(*source.documents)
        for text in [
            *stream.split.tokens[
                stream.split.document_starts[d] : stream.split.document_starts[d + 1]
            ].tolist(),
            vocabulary.eos,
        ]
    ]
    masked = 0
    for step in range(4):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, stream.objective, 16, vocabulary)
        row_B, _ = stream.draw_keys(step * 16 + np.arange(16))
        for b, start in enumerate(table.locate_starts(row_B).tolist()):
            text = [vocabulary.eos, *joined[start : start + 19]]
            seen = batch["token_ids"][b].tolist()
            used = batch["label_weights"][b] > 0
            positions = batch["masked_positions"][b, used]
            labels = batch["labels"][b, used].tolist()
            assert labels == [text[position + 1] for position in positions]
            assert (np.diff(positions) > 0).all() and positions.max() < 19
            others = set(range(20)) - {position + 1 for position in positions.tolist()}
            assert all(seen[i] == text[i] for i in others)
            masked += sum(seen[position + 1] == vocabulary.mask for position in positions.tolist())
            assert not vocabulary.special[labels].any()
    assert masked > 100
    assert batch["attention_mask"].all()


def test_its_text_is_that_of_causal_rows(bytes_store):
    """The windows do not overlap; each begins where a causal row of the same length begins."""
    data = Data(objective=MaskedNextToken(length=20, max_predictions=3), batch_size=4)
    stream = Stream(bytes_store, data)
    first = stream.build(np.arange(1), np.array([7], np.uint64))
    used = first["label_weights"][0] > 0
    row = first["token_ids"][0].copy()
    row[first["masked_positions"][0, used] + 1] = first["labels"][0, used]
    (causal, *_) = slow_rows(stream.split, 18, bytes_store.vocabulary.eos)
    assert row.tolist() == [bytes_store.vocabulary.eos, *causal]


def test_the_hybrid_needs_a_mask_and_an_end_of_text(store, t5_store):
    for given, lacking in ((store, "eos"), (t5_store, "mask")):
        with pytest.raises(ValueError, match=rf"needs the special token\(s\) {lacking}"):
            Stream(given, Data(objective=MaskedNextToken(length=20, max_predictions=3)))
    with pytest.raises(ValueError, match="length=1"):
        MaskedNextToken(length=1).check_vocabulary(store.vocabulary)
    with pytest.raises(ValueError, match="max_predictions=2 is fewer than the 3 tokens"):
        MaskedNextToken(length=20, max_predictions=2).check_vocabulary(t5_store.vocabulary)
    assert CausalLm().length == MaskedNextToken().length
