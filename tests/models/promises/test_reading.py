"""What each position attends to: an encoder every token of its row and no padding, a decoder the
tokens before.
"""

import numpy as np
import pytest

from tests.models.promises.cases import for_cases, has_decoder, has_encoder

OTHER = 17


def is_of_the_row(leaf, case):
    return case.has_encoder and leaf.shape[:2] == case.mask.shape


@for_cases(of=has_encoder)
def test_padding_is_never_read(case):
    """Exactly: ids at padding change no output except those at padding."""
    noisy = case.batch | {
        case.ids: np.where(case.mask, case.batch[case.ids], OTHER).astype(np.int32)
    }
    assert (noisy[case.ids] != case.batch[case.ids]).any()
    for found, expected in zip(case.run(noisy), case.run(case.batch), strict=True):
        if is_of_the_row(expected, case):
            found, expected = found[case.mask], expected[case.mask]
        np.testing.assert_array_equal(found, expected)


@for_cases(of=has_encoder)
def test_a_short_row_is_the_same_alone(case):
    """Within rounding: the states of four tokens, with eight padding positions after them and
    without.
    """
    ids = case.batch[case.ids]
    states, alone = case.encode(ids, case.mask), case.encode(ids[2:, :4], case.mask[2:, :4])
    np.testing.assert_allclose(alone, states[2:, :4], atol=2e-6)


@for_cases(of=lambda name: has_encoder(name) and has_decoder(name))
def test_a_decoder_reads_a_short_row_as_alone(case):
    """The logits do not depend on how many padding positions the encoder's row has."""
    short = {
        key: value[2:, :4] if key.startswith("encoder_") else value[2:]
        for key, value in case.batch.items()
    }
    (alone, *_), (logits, *_) = case.run(short), case.run(case.batch)
    np.testing.assert_allclose(alone, logits[2:], atol=1e-5)


@for_cases(of=has_encoder)
@pytest.mark.parametrize("position", [0, 5, 11])
def test_an_encoder_reads_both_ways(case, position):
    """One token changes every state of its own row, and none of another."""
    states = case.encode(case.batch[case.ids], case.mask)
    ids = case.batch[case.ids].copy()
    ids[0, position] = (ids[0, position] + 7) % 50
    changed = np.abs(case.encode(ids, case.mask) - states).max(-1)
    assert (changed[0] > 1e-4).all() and not changed[1:].any()


@for_cases(of=has_decoder)
@pytest.mark.parametrize("position", [0, 2, 5])
def test_a_decoder_reads_only_what_comes_before(case, position):
    """Exactly: no bit of an earlier position changes, and all later ones do. A decoder with an
    encoder gets the labels and shifts them to the right by one.

    A decoder with an encoder is given the labels, and moves them to the right by one.
    """
    key, first = ("labels", position + 1) if case.has_encoder else (case.ids, position)
    other = case.batch[key].copy()
    other[0, position] = (other[0, position] + 3) % 50
    (logits, *_), (expected, *_) = case.run(case.batch | {key: other}), case.run(case.batch)
    changed = np.abs(logits - expected).max(-1)
    assert not changed[1:].any() and not changed[0, :first].any()
    assert (changed[0, first:] > 1e-4).all()


@for_cases(of=lambda name: has_encoder(name) and has_decoder(name))
def test_a_decoder_reads_all_inputs(case):
    """Each token of the encoder's row changes all logits of its own row and none of another;
    padding changes none.
    """
    logits, *_ = case.run(case.batch)
    for position in range(12):
        ids = case.batch[case.ids].copy()
        ids[1, position] = (ids[1, position] + 3) % 50
        changed = np.abs(case.run(case.batch | {case.ids: ids})[0] - logits).max(-1)
        assert not changed[[0, 2]].any()
        assert (changed[1] > 1e-4).tolist() == [bool(case.mask[1, position])] * 6
