"""BART: the published sizes, and what its decoder attends to."""

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
