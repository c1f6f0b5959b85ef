"""Activations and gradients have the parameters' dtype; what a loss reads is float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.promises.cases import for_cases, has_encoder
from tests.models.promises.test_scan_and_remat import compute_score


def cast_bfloat16(params):
    """Return the parameters in bfloat16."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.bfloat16), params)


@for_cases()
def test_states_are_bfloat16_and_scores_float32(case, unroll):
    """Layers are unrolled; the other tests scan."""
    depths = case.depths
    params, model = cast_bfloat16(unroll(case.params, depths)), case.replace(scan=False)
    states, outputs = (
        jax.eval_shape(functools.partial(model.apply, **how), {"params": params}, **case.batch)
        for how in ({"method": "compute_states"}, {})
    )
    assert jax.tree.leaves(states)[0].dtype == jnp.bfloat16
    # Others are states, of one direction or of two.
    scores = [leaf for leaf in jax.tree.leaves(outputs) if leaf.shape[-1] % case.config.width]
    assert scores
    assert {leaf.dtype for leaf in scores} == {jnp.dtype("float32")}


@for_cases(of=has_encoder)
@pytest.mark.parametrize("scan", [True, False])
def test_what_an_encoder_returns_is_bfloat16(case, unroll, scan):
    """The pooler is included if there is one."""
    depths = case.depths
    params = cast_bfloat16(case.params if scan else unroll(case.params, depths))
    found = jax.eval_shape(
        functools.partial(case.replace(scan=scan).apply, method="encode"),
        {"params": params},
        case.batch[case.ids],
        case.mask,
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.bfloat16)}


@for_cases()
def test_gradients_are_bfloat16(case):
    how = {"train": True, "rngs": {"dropout": jax.random.key(0)}}
    _, grads = jax.eval_shape(
        lambda params: compute_score(case.model, params, case.batch, **how),
        cast_bfloat16(case.params),
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(grads)} == {jnp.dtype(jnp.bfloat16)}


@for_cases()
def test_bfloat16_is_near_float32_and_scores_have_more_bits(case):
    """The first scores are compared; all that are float32 are no rounded bfloat16."""
    exact = case.run(case.batch)[0]
    outputs = jax.jit(
        lambda params: jax.tree.leaves(case.model.apply({"params": params}, **case.batch))
    )(cast_bfloat16(case.params))
    exact, outputs = jax.device_get((exact, outputs))
    assert np.square(outputs[0] - exact).mean() ** 0.5 < 0.03 * exact.std()
    for scores in outputs:
        if scores.dtype == jnp.float32:
            assert not np.array_equal(scores, scores.astype(jnp.bfloat16).astype(jnp.float32))
