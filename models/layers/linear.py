"""Linear maps and embedding tables, with their initialisers.

I input features   O output features   V vocabulary   D width   ... any leading axes
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.ops import PLAIN, Ops

# A constructor of modules, such as partial(Attention, num_heads=12).
ModuleFactory = Callable[..., nn.Module]
Initializer = nn.initializers.Initializer

# A normal of 0.02 truncated at two standard deviations and not rescaled, as in BERT's own code: its
# standard deviation is 0.0176.
TRUNCATED = nn.initializers.truncated_normal(0.02)
# A variance of 1/n for a kernel that sums n terms: the output is as large as the input.
FAN_IN = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Dense(nn.Module):
    """x @ kernel + bias, which contracts the last `num_contracting_dims` dimensions of x.

    features: the output dimension, or several of them, e.g. (H, K).
    num_contracting_dims: how many dimensions of x are contracted.
    out_dtype: the dtype of the output, by default x's (float32 for logits).
    """

    features: int | Sequence[int]
    num_contracting_dims: int = 1
    use_bias: bool = True
    kernel_init: Initializer = TRUNCATED
    out_dtype: jnp.dtype | None = None
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        *x: jax.Array,
        activation: Callable[..., jax.Array] | None = None,
        drop: Callable[[jax.Array], jax.Array] | None = None,
    ) -> jax.Array:
        """Return x @ kernel + bias, or drop(activation(*x)) @ kernel + bias.

        Args:
          *x: the input [..., I]; with `activation` one or several arrays, its arguments.
          activation: an activation, which the backward pass may recompute.
          drop: a `models.layers.dropout.KeyedDropout`, applied after `activation`, which it needs.

        Returns:
          The output [..., *features].
        """
        assert drop is None or activation is not None
        in_shape = x[0].shape[-self.num_contracting_dims :]
        features = self.features
        out_shape = tuple(features) if isinstance(features, Sequence) else (features,)

        def init_kernel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            # The variance is taken from the kernel as a matrix [I, O].
            matrix_shape_IO = (math.prod(in_shape), math.prod(out_shape))
            return self.kernel_init(key, matrix_shape_IO).reshape(shape)

        kernel = self.param("kernel", init_kernel, (*in_shape, *out_shape))
        if activation is None:
            y: Any = self.ops.linear(*x, kernel, self.num_contracting_dims, self.out_dtype)
        else:
            y = self.ops.activation_linear(
                activation, x, drop, kernel, self.num_contracting_dims, self.out_dtype
            )
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, out_shape)
            y = self.ops.add_bias(y, bias.astype(y.dtype))
        return y


class Embed(nn.Module):
    """An embedding table [V, D], which embeds token ids and, tied to the output, makes logits.

    size: V. width: D.
    """

    size: int
    width: int
    embedding_init: Initializer = TRUNCATED  # not `init`, which is a method of every module
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the table."""
        self.embedding = self.param("embedding", self.embedding_init, (self.size, self.width))

    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return the embeddings [..., D] of int32 ids [...]; NaN for an id outside of the table."""
        return self.ops.take_rows(self.embedding, ids)

    def attend(self, x: jax.Array) -> jax.Array:
        """Return the logits x @ table^T, float32 [..., V], of x [..., D]."""
        return self.ops.linear(x, self.embedding.T, 1, jnp.float32)
