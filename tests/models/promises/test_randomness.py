"""A model draws random numbers only in training, and the same ones for the same key."""

import functools

import flax
import jax
import numpy as np
import pytest

from tests.models.promises.cases import for_cases


@for_cases(of=lambda name: name != "t5")  # it applies dropout where v1.1 does
def test_randomness_only_when_training(case):
    model = case.replace(dropout=0.1)

    @functools.partial(jax.jit, static_argnames="train")
    def apply_model(key=None, train=False):
        rngs = {} if key is None else {"dropout": key}
        return jax.tree.leaves(
            model.apply({"params": case.params}, **case.batch, train=train, rngs=rngs)
        )[0]

    calm = apply_model()
    np.testing.assert_array_equal(calm, apply_model())
    one, again, other = (apply_model(jax.random.key(seed), train=True) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other, atol=1e-2)
    assert not np.allclose(one, calm, atol=1e-2)
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        apply_model(train=True)
