"""Linear maps and embedding tables: one place for initialisers and for the names of parameters.

B batch   L length   D width   V vocabulary
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.ops import PLAIN, Ops

Part = Callable[..., nn.Module]  # a constructor, e.g. partial(Attention, num_heads=12)
Init = nn.initializers.Initializer

# A normal of 0.02 cut at two deviations and not rescaled, as BERT's own code draws it: what is left deviates by 0.0176.
TRUNCATED = nn.initializers.truncated_normal(0.02)
# A variance of 1/n for a kernel that sums n terms: the output is as large as the input.
FAN_IN = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Dense(nn.Module):
    """x @ kernel + bias over the last `contract` dimensions of x.

    features: how many it makes, or several dimensions of them, e.g. (H, K). result: the type of the product where it is not that of x
    (logits, in float32).
    """

    features: int | Sequence[int]
    contract: int = 1
    use_bias: bool = True
    kernel_init: Init = TRUNCATED
    result: jnp.dtype | None = None
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, *x, act=None, drop=None) -> jax.Array:
        """Return the map of x, or with `act` that of drop(act(*x)). drop: a `models.layers.dropout.Drop`, or None; only with `act`."""
        assert drop is None or act is not None
        read = x[0].shape[-self.contract :]
        made = tuple(self.features) if isinstance(self.features, Sequence) else (self.features,)

        def init(key, shape):
            return self.kernel_init(key, (math.prod(read), math.prod(made))).reshape(
                shape
            )  # variances are those of the flat matrix

        kernel = self.param("kernel", init, (*read, *made))
        if act is None:
            y: Any = self.ops.linear(*x, kernel, self.contract, self.result)
        else:
            y = self.ops.activation_linear(act, x, drop, kernel, self.contract, self.result)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, made)
            y = self.ops.add_bias(y, bias.astype(y.dtype))
        return y


class Embed(nn.Module):
    """A table of vectors, `embedding` [V, D]: read by id on the way in, and by similarity on the way out (`attend`)."""

    size: int
    width: int
    embedding_init: Init = TRUNCATED  # not `init`, which is every module's method
    ops: Ops = PLAIN

    def setup(self):
        self.embedding = self.param("embedding", self.embedding_init, (self.size, self.width))

    def __call__(self, ids):
        """Return the vectors [..., D] of int32 ids [...]. An id outside of the table gives NaN, never its neighbour's vector."""
        return jnp.take(self.embedding, ids, axis=0, mode="fill")

    def attend(self, x):
        """Return the scores of every row of the table, float32 [..., V], for x [..., D]."""
        return self.ops.linear(x, self.embedding.T, 1, jnp.float32)
