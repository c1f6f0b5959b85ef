"""BART: the published sizes, and what its decoder may read."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bart import BartConfig

LARGE = BartConfig(width=1024, depth=12, decoder_depth=12, num_heads=16, mlp=4096)


@pytest.mark.parametrize(
    ("config", "size"), [(BartConfig(), 139_420_416), (LARGE, 406_291_456)], ids=["base", "large"]
)
def test_published_sizes(config, size):
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(
        build(config).init, jax.random.key(0), ids, jax.ShapeDtypeStruct((1, 8), bool), ids
    )
    assert sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes)) == size


def test_a_target_is_told_from_those_before_it_and_from_all_of_the_input(make, tiny_configs):
    model, params = make(tiny_configs["bart"])
    rng = np.random.default_rng(0)
    inputs, targets = (
        jnp.asarray(rng.integers(3, 50, (1, length)), jnp.int32) for length in (9, 7)
    )
    valid = jnp.arange(9)[None] < 8
    run = jax.jit(
        lambda inputs, targets: model.apply({"params": params}, inputs, valid, targets)[0]
    )
    base = run(inputs, targets)
    changed = run(inputs, targets.at[0, 4].set(2)) != base
    assert not changed[:5].any() and changed[5:].any(axis=1).all()
    assert (run(inputs.at[0, 7].set(2), targets) != base).any(axis=1).all()
    assert (run(inputs.at[0, 8].set(2), targets) == base).all(), "padding is read by nobody"


def test_a_row_longer_than_the_positions_is_refused(make, tiny_configs):
    model, params = make(dataclasses.replace(tiny_configs["bart"], length=5))
    ids = jnp.ones((1, 6), jnp.int32)
    with pytest.raises(ValueError, match="a row of 6 tokens is longer than the 5 positions"):
        jax.eval_shape(model.apply, {"params": params}, ids, ids > 0, ids)
