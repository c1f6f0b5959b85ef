"""ELECTRA as in its paper: sizes, shared embeddings, sampling by the generator's probabilities, no
gradient through the sampling.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import electra
from models.electra import replace_masked, select_by_uniforms
from pretrain.training.losses import find_loss

LENGTHS = np.array([12, 9, 6])
VALID = np.arange(12) < LENGTHS[:, None]
POSITIONS = np.array([[1, 4, 7, 9], [2, 5, 7, 0], [3, 4, 0, 0]], np.int32)
MASKED = np.arange(4) < np.array([4, 3, 2])[:, None]
RNG = np.random.default_rng(0)
TOKENS = np.where(VALID, RNG.integers(1, 50, (3, 12)), 0).astype(np.int32)
TARGETS = RNG.integers(1, 50, (3, 4)).astype(np.int32)
CHANCES = RNG.random((3, 4), np.float32)
BATCH = {
    "token_ids": TOKENS,
    "attention_mask": VALID,
    "masked_positions": POSITIONS,
    "labels": TARGETS,
    "uniforms": CHANCES,
}
BATCH |= {
    "label_weights": MASKED.astype(np.float32),
    "discriminator_weights": VALID.astype(np.float32),
}


LOSS = find_loss("replaced_token")


@pytest.fixture(scope="module")
def case(make, tiny_configs):
    """Return (model, parameters, batch, the generator's logits, tokens sampled by hand); every
    other slot samples the original token.
    """
    model, params = make(tiny_configs["electra"])
    logits, _ = jax.jit(model.apply)({"params": params}, TOKENS, VALID, None, POSITIONS)
    logits = np.asarray(logits)
    drawn = by_hand(logits, CHANCES)
    batch = BATCH | {"labels": np.where(np.arange(4) % 2, drawn, TARGETS).astype(np.int32)}
    assert (drawn == batch["labels"])[MASKED].sum() == 4 and MASKED.sum() == 9
    return model, params, batch, logits, drawn


def by_hand(logits, chances):
    """Compute the inverse of the cumulative distribution in float64."""
    shares = np.exp(logits.astype(np.float64))
    below = np.cumsum(shares / shares.sum(-1, keepdims=True), axis=-1)
    return (below <= chances[..., None]).sum(-1)


def test_the_loss_is_that_of_the_paper(case):
    """L_MLM + 50 L_Disc, each a mean: over the masked tokens, and over all tokens (section 2,
    appendix A). A correctly sampled token counts as original; padding slots replace nothing.

    A word that the generator got right is not replaced; slots that fill up a row fill nothing in.
    """
    model, params, batch, logits, drawn = case
    filled, replaced = TOKENS.copy(), np.zeros_like(VALID)
    for row, slot in zip(*np.nonzero(MASKED)):
        filled[row, POSITIONS[row, slot]] = drawn[row, slot]
        replaced[row, POSITIONS[row, slot]] = slot % 2 == 0

    @jax.jit
    def compute_losses(batch):
        _, judged, labels = model.apply(
            {"params": params}, **LOSS.select_inputs(batch), method="compute_states"
        )
        alone = model.apply({"params": params}, filled, VALID, method="discriminate")
        return judged, labels, alone, LOSS.sum_batch(model, params, batch), LOSS.sum_weights(batch)

    judged, labels, alone, sums, totals = jax.device_get(compute_losses(batch))
    np.testing.assert_array_equal(labels, replaced)
    np.testing.assert_allclose(judged, alone, atol=1e-5)
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nats = -np.take_along_axis(log_shares, batch["labels"][..., None], -1)[..., 0][MASKED].mean()
    right = 1 / (1 + np.exp(np.where(replaced, -1.0, 1.0) * alone))[VALID]
    means = {name: sums[name] / totals[name] for name in LOSS.weight_keys}
    np.testing.assert_allclose(
        LOSS.compute_loss(means), nats - 50 * np.log(right).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(means["replaced_token_accuracy"], (right > 0.5).mean(), rtol=1e-6)
    np.testing.assert_allclose(means["replaced_token_share"], 5 / VALID.sum(), rtol=1e-6)


def test_no_gradient_crosses_the_draw(case):
    """Section 2: the discriminator's loss gives the generator no gradient except for the shared
    embeddings, and vice versa.
    """
    model, params, batch, *_ = case

    @jax.jit
    def find_moved(params):
        def compute_terms(params):
            sums = LOSS.sum_batch(model, params, batch)
            return {name: sums[name] for name in LOSS.loss_terms}

        terms, pull = jax.vjp(compute_terms, params)
        grads = {
            name: pull({each: jnp.full_like(terms[each], each == name) for each in terms})[0]
            for name in terms
        }
        return {
            name: {
                part: jnp.array([jnp.any(leaf != 0) for leaf in jax.tree.leaves(grad[part])]).any()
                for part in grad
            }
            for name, grad in grads.items()
        }

    parts = {
        name: {part for part, any_moved in found.items() if any_moved}
        for name, found in find_moved(params).items()
    }
    assert parts == {
        "masked_lm": {"embeddings", "generator", "mlm_head"},
        "replaced_token": {"embeddings", "discriminator", "discriminator_head"},
    }


def test_tokens_are_sampled_with_their_probabilities():
    """10,000 evenly spread uniforms sample each token within one of its expected count, improbable
    ones never, the last one too.
    """
    logits = np.random.default_rng(1).normal(0, 2, 40).astype(np.float32)
    logits[[0, 7, 39]] = -np.inf
    n = 400_000
    chances = ((np.arange(n) + 0.5) / n).astype(np.float32)[None]
    select = jax.jit(select_by_uniforms)
    drawn = np.asarray(select(chances, logits[None, None]))[0]
    shares = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=40), shares * n, atol=2)
    ends = select(np.float32([[0.0, 1 - 2**-24]]), np.broadcast_to(logits, (1, 2, 40)))
    assert ends.tolist() == [[1, 38]]


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_tokens_are_replaced_at_masked_positions_only(dtype):
    """As in a loop in order, also at the ends of a row and where a position occurs twice."""
    rng = np.random.default_rng(4)
    row_BL, new_BP = rng.integers(0, 9, (6, 11)).astype(dtype), rng.integers(0, 9, (6, 8))
    new_BP, masked_BP = new_BP.astype(dtype), rng.random((6, 8)) < 0.6
    positions_BP = rng.integers(0, 11, (6, 8)).astype(np.int32)
    positions_BP[0, :2], masked_BP[0] = (0, 10), True
    masked_BP[1] = False
    expected_BL = row_BL.copy()
    for b, p in np.argwhere(masked_BP):
        expected_BL[b, positions_BP[b, p]] = new_BP[b, p]
    found_BL = jax.jit(replace_masked)(row_BL, positions_BP, new_BP, masked_BP)
    assert found_BL.dtype == dtype
    np.testing.assert_array_equal(found_BL, expected_BL)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_largest_uniform_samples_an_existing_token(size):
    """The sum of the probabilities may be rounded to more or less than 1."""
    logits = np.random.default_rng(2).normal(0, 3, (size, 1, 301)).astype(np.float32)
    logits[..., -1] = -np.inf
    drawn = jax.jit(select_by_uniforms)(np.full((size, 1), 1 - 2**-24, np.float32), logits)
    assert np.max(drawn) <= 299


def test_tokens_sampled_in_chunks_are_the_same(case, monkeypatch):
    """The gathered positions of a row, so that not all logits exist at once."""
    model, params, *_ = case
    x_BPD = np.random.default_rng(3).normal(0, 1, (3, 4, 8)).astype(np.float32)

    def draw_words():
        return jax.jit(
            lambda params: model.apply({"params": params}, x_BPD, CHANCES, method="sample_tokens")
        )(params)

    whole = draw_words()
    monkeypatch.setattr(electra, "POSITIONS_PER_CHUNK", 3)
    np.testing.assert_array_equal(draw_words(), whole)
    assert len(set(np.asarray(whole).ravel().tolist())) > 3


def test_low_precision_is_left_where_it_matters(case):
    model, params, batch, *_ = case
    low = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), params)
    states, judged, _ = jax.eval_shape(
        lambda low: model.apply(
            {"params": low}, **LOSS.select_inputs(batch), method="compute_states"
        ),
        low,
    )
    words = jax.eval_shape(
        lambda low, states: model.apply({"params": low}, states, method="compute_logits"),
        low,
        states,
    )
    assert words.dtype == judged.dtype == jnp.float32 and states.dtype == jnp.bfloat16
