"""Span corruption equals slow references: the length formula, the segmentation, and the corrupted
rows.
"""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from data import batch_spec
from data.config import Data
from data.objectives import SpanCorruption
from data.objectives.span_corruption import count_noise, draw_lengths, find_lengths, replace_spans
from data.pipeline import Stream
from data.rows import hashing
from data.vocabulary.load import read_vocabulary, train_vocabulary


def compute_published_sizes(inputs, rate, mean_span):
    """Return (raw length, target length) as the paper's authors compute them: lengthen the text
    while its corrupted form fits.
    """

    def compute_sizes(raw):
        noise = round(raw * rate)
        spans = round(noise / mean_span)
        return raw - noise + spans + 1, noise + spans + 1

    raw = inputs
    while compute_sizes(raw + 1)[0] <= inputs:
        raw += 1
    return raw, compute_sizes(raw)[1]


def test_the_lengths_are_the_published_ones():
    assert SpanCorruption().raw_length == 568 and SpanCorruption().axis_sizes() == {
        "L": 512,
        "T": 114,
    }
    for inputs in (64, 114, 128, 256, 511, 512, 1024, 2048):
        for rate in (0.1, 0.15, 0.25, 0.5):
            for mean_span in (2.0, 3.0, 5.0, 10.0):
                objective = SpanCorruption(inputs, rate, mean_span)
                assert (objective.raw_length, objective.target_length) == compute_published_sizes(
                    inputs, rate, mean_span
                )


@pytest.mark.parametrize("inputs", range(3, 80))
@pytest.mark.parametrize(("rate", "mean_span"), [(0.15, 3.0), (0.15, 1.0), (0.5, 1.5), (0.3, 7.7)])
def test_every_length_is_filled_exactly(inputs, rate, mean_span):
    objective = SpanCorruption(inputs, rate, mean_span)
    num_unmasked = objective.raw_length - objective.num_noise_tokens
    assert (
        num_unmasked + objective.num_spans + 1 == inputs
        and objective.num_noise_tokens >= objective.num_spans >= 1
    )


def test_all_segmentations_are_equally_likely():
    drawn = draw_lengths(hashing.derive_keys(1, np.arange(20_000)), 7, 4)
    expected = {tuple(np.diff((0, *cuts, 7)).tolist()) for cuts in combinations(range(1, 7), 3)}
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == expected and len(expected) == 20
    assert (
        sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 43.8
    )  # chi-square, 19 degrees, p = 0.001
    assert draw_lengths(hashing.derive_keys(1, np.arange(3)), 5, 1).tolist() == [[5]] * 3
    assert draw_lengths(hashing.derive_keys(1, np.arange(3)), 4, 4).tolist() == [[1] * 4] * 3


def test_unmasked_spans_do_not_reveal_removed_spans():
    unmasked, gone = SpanCorruption(64).draw_segment_lengths(
        hashing.derive_keys(6, np.arange(10_000))
    )
    assert abs(np.corrcoef(unmasked[:, 0] == 1, gone[:, 0] == 1)[0, 1]) < 4 / np.sqrt(10_000)
    assert unmasked.shape == gone.shape == (10_000, SpanCorruption(64).num_spans)


def slow_corrupt(raw, num_unmasked, num_removed, sentinels, eos):
    """Corrupt one row token by token: a span becomes a sentinel in the inputs and follows that
    sentinel in the targets.
    """
    raw, inputs, targets = list(raw), [], []
    for stay, leave, sentinel in zip(num_unmasked, num_removed, sentinels):
        inputs += raw[:stay] + [sentinel]
        targets += [sentinel] + raw[stay : stay + leave]
        raw = raw[stay + leave :]
    assert not raw
    return inputs + [eos], targets + [eos]


@pytest.mark.parametrize(
    "objective",
    [SpanCorruption(40), SpanCorruption(64, 0.4, 1.0), SpanCorruption(9), SpanCorruption(3)],
)
def test_rows_are_those_of_the_slow_reference(objective):
    raw = np.random.default_rng(0).integers(3, 500, (30, objective.raw_length))
    num_unmasked, gone = objective.draw_segment_lengths(hashing.derive_keys(2, np.arange(30)))
    sentinels = np.arange(999, 999 - objective.num_spans, -1)
    inputs, targets = replace_spans(raw, num_unmasked, gone, sentinels, 1)
    for i in range(30):
        expected = slow_corrupt(
            raw[i].tolist(), num_unmasked[i].tolist(), gone[i].tolist(), sentinels.tolist(), 1
        )
        assert (inputs[i].tolist(), targets[i].tolist()) == expected
    assert inputs.shape[1] == objective.inputs and targets.shape[1] == objective.target_length


def rebuild_row(inputs, targets, vocabulary):
    """Restore the raw row: replace each sentinel of the inputs by the tokens that follow it in the
    targets.
    """
    spans, current = {}, None
    for token in targets[:-1]:
        if token in vocabulary.sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    raw = []
    for token in inputs[:-1]:
        raw += spans.pop(token) if token in vocabulary.sentinels else [token]
    assert not spans and inputs[-1] == targets[-1] == vocabulary.eos
    return raw


def test_an_epoch_is_the_text(t5_store, t5_vocabulary):
    data = Data(objective=SpanCorruption(inputs=50), batch_size=16)
    stream = Stream(t5_store, data, seed=4)
    text, raw = t5_store.open_split("train").tokens.tolist(), data.objective.raw_length
    expected = Counter(
        tuple(text[min(i, len(text) - raw) :][:raw]) for i in range(0, len(text), raw)
    )
    seen = Counter()
    for step in range(-(-stream.num_rows // 16)):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, data.objective, 16)
        assert batch["encoder_attention_mask"].all() and (batch["label_weights"] == 1).all()
        rows = [
            rebuild_row(i, t, t5_vocabulary)
            for i, t in zip(batch["encoder_token_ids"].tolist(), batch["labels"].tolist())
        ]
        seen.update(map(tuple, rows[: stream.num_rows - step * 16]))
    assert seen == expected
    first = batch["labels"][:, 0]
    assert (first == t5_vocabulary.size - 1).all()  # <extra_id_0> is the last id
    assert [t5_vocabulary.id_to_piece(i) for i in t5_vocabulary.sentinels[:2]] == [
        "<extra_id_0>",
        "<extra_id_1>",
    ]


def test_the_released_vocabulary(corpora):
    vocabulary = read_vocabulary(corpora / "vocab_t5" / "t5_spiece.model")
    SpanCorruption().check_vocabulary(vocabulary)
    assert vocabulary.sentinels[:28] == tuple(range(32099, 32071, -1))


def test_refusals(t5_vocabulary, vocabulary):
    with pytest.raises(
        ValueError, match="make 114 spans a row, but the vocabulary .* has 100 sentinels"
    ):
        SpanCorruption(inputs=2048).check_vocabulary(t5_vocabulary)
    with pytest.raises(ValueError, match=r"span_corruption needs the special token\(s\) eos"):
        SpanCorruption().check_vocabulary(vocabulary)
    with pytest.raises(ValueError, match="need as many tokens between them"):
        SpanCorruption(inputs=60, noise_density=0.8, mean_span=1.0).check_vocabulary(t5_vocabulary)
    for wrong in (
        {"inputs": 2},
        {"noise_density": 0.0},
        {"noise_density": 1.0},
        {"mean_span": 0.5},
    ):
        with pytest.raises(ValueError, match="allowed are inputs >= 3"):
            SpanCorruption(**wrong).check_vocabulary(t5_vocabulary)


def test_hardly_any_token_that_stays_is_refused(t5_vocabulary):
    for mean_span in (1e9, float("inf")):
        objective = SpanCorruption(inputs=60, noise_density=0.99999999, mean_span=mean_span)
        with pytest.raises(ValueError, match="inputs=60 hold a text of more than .* lower"):
            objective.check_vocabulary(t5_vocabulary)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(inputs=some.integers(3, 300), rate=some.floats(0.01, 0.95), mean_span=some.floats(1, 400))
def test_the_longest_text_is_found(inputs, rate, mean_span):
    """It is the one before the first that is too long, as the texts grow by one token each."""
    raw = 2
    while True:
        noise, spans = count_noise(raw, rate, mean_span)
        if raw - noise + spans + 1 > inputs:
            break
        raw, longest = raw + 1, (raw, noise, spans)
    assert find_lengths(inputs, rate, mean_span) == longest


# ---- a mixture of denoisers (Tay et al. 2022) --------------------------------


def test_one_long_span_is_the_end_of_the_text(t5_store):
    """The S-denoiser of table 1: mean span L / 4, a quarter of the text, one span."""
    objective = SpanCorruption(inputs=40, noise_density=0.25, mean_span=40)
    assert objective.num_spans == 1
    stream = Stream(t5_store, Data(objective=objective, batch_size=8), seed=3)
    batch, (row_B, _) = stream.build_batch(5), stream.draw_keys(40 + np.arange(8))
    sentinel, eos = t5_store.vocabulary.sentinels[0], t5_store.vocabulary.eos
    cut = objective.raw_length - objective.num_noise_tokens
    for b, start in enumerate(stream.table.locate_starts(row_B).tolist()):
        text = stream.split.tokens[start : start + objective.raw_length].tolist()
        assert batch["encoder_token_ids"][b].tolist() == [*text[:cut], sentinel, eos]
        assert batch["labels"][b].tolist() == [sentinel, *text[cut:], eos]


def test_the_mode_token_comes_first_and_takes_a_place(t5_store):
    """The row is as with one token less, after the mode token; text and spans are the same."""
    vocabulary = t5_store.vocabulary
    with_mode, without = (
        Stream(
            t5_store,
            Data(objective=SpanCorruption(inputs=inputs, mode=mode), batch_size=8),
            seed=3,
        )
        for inputs, mode in ((41, "<extra_id_99>"), (40, ""))
    )
    batch, plain = with_mode.build_batch(2), without.build_batch(2)
    batch_spec.check_batch(batch, with_mode.objective, 8, vocabulary)
    assert (batch["encoder_token_ids"][:, 0] == vocabulary.sentinels[99]).all()
    np.testing.assert_array_equal(batch["encoder_token_ids"][:, 1:], plain["encoder_token_ids"])
    np.testing.assert_array_equal(batch["labels"], plain["labels"])


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("[NLU]", r"mode=\[NLU\] is not a token of the vocabulary .*--layout ul2"),
        ("<extra_id_0>", "is the sentinel of one of the 3 spans"),
    ],
)
def test_a_mode_that_the_vocabulary_has_not_is_refused(t5_store, mode, message):
    objective = SpanCorruption(inputs=40, mode=mode)
    assert objective.num_spans == 2
    with pytest.raises(
        ValueError, match=message.replace("3 spans", f"{objective.num_spans} spans")
    ):
        Stream(t5_store, Data(objective=objective, batch_size=8))


def test_the_vocabulary_of_ul2_has_the_mode_tokens_of_the_released_checkpoint(texts):
    vocabulary = train_vocabulary(texts, 167, layout="ul2")
    assert vocabulary.pieces[:6] == ("<pad>", "</s>", "<unk>", "[NLU]", "[NLG]", "[S2S]")
    assert vocabulary.special[[3, 4, 5]].all() and len(vocabulary.sentinels) == 100
    assert 4 not in vocabulary.encode("[NLG] is only text here")
    objective = SpanCorruption(inputs=32, mode="[S2S]")
    objective.check_vocabulary(vocabulary)
    assert objective.find_mode_id(vocabulary) == 5
