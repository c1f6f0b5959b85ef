"""Masks filled in steps: the plan, and each step, against a slow loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from models.generation.sampling import Greedy, Sample
from models.generation.unmasking import fill_masks, plan_steps

L, P, V, MASK = 9, 4, 7, 6
ALLOWED = np.arange(V) < 5
WEIGHTS = np.random.default_rng(0).normal(size=(L, V, P, V)).astype(np.float32)


def test_a_plan_fills_each_mask_once_and_each_block_before_the_next():
    assert plan_steps(5) == [[5, 1]] * 5
    assert plan_steps(5, steps=2) == [[5, 3], [5, 2]]
    assert plan_steps(5, steps=99) == [[5, 1]] * 5
    assert plan_steps(5, steps=1, block=2) == [[2, 2], [4, 2], [5, 1]]
    assert plan_steps(6, steps=4, block=3) == [[3, 2], [3, 1], [6, 2], [6, 1]]
    assert plan_steps(3, block=8) == [[3, 1]] * 3


def compute_logits(tokens_BL):
    """Return scores that depend on every token of a row."""
    return jnp.einsum("blv,lvpw->bpw", jax.nn.one_hot(tokens_BL, V), WEIGHTS)


def make_rows(number):
    """Return rows with four masks each, and their places."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 5, (number, L)).astype(np.int32)
    places = np.sort(rng.permuted(np.tile(np.arange(L), (number, 1)), axis=1)[:, :P], axis=1)
    np.put_along_axis(tokens, places, MASK, axis=1)
    return tokens, places.astype(np.int32)


def fill(tokens, places, plans, strategy=Greedy(), numbers=None):
    """Return `fill_masks` of rows, each with its plan, as NumPy arrays."""
    plan_SB2 = np.zeros((8, len(tokens), 2), np.int32)
    for b, plan in enumerate(plans):
        plan_SB2[: len(plan), b] = plan
    numbers = np.arange(len(tokens)) if numbers is None else np.asarray(numbers)
    keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(3), n))(numbers)
    filled = jax.jit(fill_masks, static_argnames=("compute_logits", "strategy"))(
        compute_logits, tokens, places, plan_SB2[..., 0], plan_SB2[..., 1], keys, ALLOWED, strategy
    )
    return jax.device_get(filled)


def fill_slowly(tokens, places, plan):
    """Return (ids, probabilities, steps) of one row."""
    tokens, steps = tokens.copy(), np.zeros(P, int)
    ids, probabilities = np.zeros(P, int), np.zeros(P)
    for step, (num_open, count) in enumerate(plan, 1):
        logits = np.array(compute_logits(tokens[None])[0])
        logits[:, ~ALLOWED] = -np.inf
        shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        waiting = [p for p in range(num_open) if not steps[p]]
        for p in sorted(waiting, key=lambda p: -shares[p].max())[:count]:
            ids[p], probabilities[p], steps[p] = shares[p].argmax(), shares[p].max(), step
        tokens[places[steps > 0]] = ids[steps > 0]
    return ids, probabilities, steps


def test_each_step_keeps_the_most_certain_of_the_open_masks():
    tokens, places = make_rows(5)
    plans = [plan_steps(P, *given) for given in ((), (2,), (1,), (None, 2), (2, 2))]
    filled = fill(tokens, places, plans)
    for b, plan in enumerate(plans):
        ids, probabilities, steps = fill_slowly(tokens[b], places[b], plan)
        assert filled.ids_BP[b].tolist() == ids.tolist()
        assert filled.step_BP[b].tolist() == steps.tolist() and steps.all()
        np.testing.assert_allclose(filled.probability_BP[b], probabilities, rtol=1e-5)
    assert max(filled.step_BP[3, :2]) < min(filled.step_BP[3, 2:])
    assert (filled.ids_BP < 5).all()


def test_samples_have_the_probabilities_of_the_model_and_depend_on_no_other_row():
    tokens, places = (np.repeat(each[:1], 4000, axis=0) for each in make_rows(1))
    plans = [plan_steps(P, 1)] * 4000  # all masks at once
    filled = fill(tokens, places, plans, Sample(temperature=2.0))
    logits = np.array(compute_logits(tokens[:1])[0])[:, :5] / 2
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    for p in range(P):
        seen = np.bincount(filled.ids_BP[:, p], minlength=5) / 4000
        assert (np.abs(seen - shares[p]) < 5 * (shares[p] / 4000) ** 0.5).all()
    # The probability is the model's own, at temperature 1.
    own = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        filled.probability_BP[:9], own[np.arange(P), filled.ids_BP[:9]], rtol=1e-5
    )
    alone = fill(tokens[:1], places[:1], plans[:1], Sample(temperature=2.0), [1234])
    assert alone.ids_BP[0].tolist() == filled.ids_BP[1234].tolist()
