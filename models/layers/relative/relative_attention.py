"""Attention by relative position, with a memory of the previous segment (Dai et al. 2019).

Transformer-XL is causal; XLNet (Yang et al. 2019) attends in both directions. The score of query i
and key j is (q_i + u) k_j + (q_i + v) r_(i - j): u and v are learned, r is a projection of
sinusoids of the distance (section 3.3). The position term is computed once for each query and
distance, [L, R], and shifted, so that no array has an axis of pairs and one of features (appendix
B).

B batch   L query length   N = memory + L keys   R distances: N, or N + L - 1 in both directions
D width   H heads   K head width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from models.layers.attention import Attention
from models.layers.cache import SEGMENT_MEMORY
from models.layers.embeddings import make_sinusoids
from models.layers.linear import Dense, Initializer
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias


class RelativePositions(flax.struct.PyTreeNode):
    """What all layers share of the relative positions.

    embedding_RD: embeddings of the distances, the largest first.
    content_bias_HK: u; None where each layer has its own.
    position_bias_HK: v; None where each layer has its own.
    """

    embedding_RD: jax.Array
    content_bias_HK: jax.Array | None = None
    position_bias_HK: jax.Array | None = None


def embed_distances(N: int, D: int, clamp_len: int | None = None, num_after: int = 0) -> np.ndarray:
    """Return sinusoids of the distances N - 1 to -num_after, float32 [R, D], as `make_sinusoids`.

    Args:
      N: the number of keys.
      D: the width.
      clamp_len: longer distances are embedded as this one; None: no limit.
      num_after: the number of keys after its own position that a query attends to; 0 if causal.

    Raises:
      ValueError: D is odd.
    """
    distance_R = np.arange(N - 1, -num_after - 1, -1, dtype=np.float64)
    if clamp_len is not None:
        distance_R = np.clip(distance_R, -clamp_len, clamp_len)
    return make_sinusoids(distance_R, D)


class RelativeAttention(Attention):
    """Attention whose scores depend on the distance, over a memory and x.

    The memory is the variable `states` [B, memory, D] of the collection `SEGMENT_MEMORY`: the last
    activations that this layer has read, without a gradient. It is read where the collection has
    it and written where the collection is mutable. The mask's offset is its length.

    memory: the number of positions that are kept; None: no memory.
    bias_init: the initializer of u and v, where each layer has its own.
    """

    memory: int | None = None
    bias_init: Initializer = nn.initializers.normal(0.02)

    def join_memory(self, x_BLD: jax.Array, relative: Any) -> jax.Array:
        """Return the memory and x, and write the new memory.

        Raises:
          ValueError: the memory has another batch size or width than x.
        """
        if self.memory is None:
            return x_BLD
        shape, joined = list(x_BLD.shape), x_BLD
        B, _, D = shape
        if self.has_variable(SEGMENT_MEMORY, "states"):
            memory = self.get_variable(SEGMENT_MEMORY, "states")
            if memory.shape != (B, self.memory, D):
                raise ValueError(
                    f"a segment memory of shape {list(memory.shape)} for rows of {shape}: it "
                    f"must be {[B, self.memory, D]}. Begin with zeros where the batch size changes"
                )
            memory = jax.lax.stop_gradient(memory).astype(x_BLD.dtype)
            joined = jnp.concatenate([memory, x_BLD], axis=1)
        if self.is_mutable_collection(SEGMENT_MEMORY):
            last = jax.lax.stop_gradient(joined)[:, -self.memory :].astype(jnp.float32)
            missing = self.memory - last.shape[1]
            last = jnp.pad(last, ((0, 0), (missing, 0), (0, 0)))
            if self.is_initializing():
                last = jnp.zeros_like(last)
            self.put_variable(SEGMENT_MEMORY, "states", last)
        return joined

    def add_terms(
        self,
        q_BLHK: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | DistanceBias | None,
        relative: Any,
    ) -> tuple[jax.Array, jax.Array | DistanceBias | None]:
        """Return q + u, and the position term as the bias.

        Raises:
          ValueError: there is a bias already.
        """
        shape_HK = q_BLHK.shape[2:]
        content_HK, position_HK = relative.content_bias_HK, relative.position_bias_HK
        if content_HK is None:
            content_HK = self.param("content_bias", self.bias_init, shape_HK)
            position_HK = self.param("position_bias", self.bias_init, shape_HK)
        project = partial(Dense, use_bias=False, kernel_init=self.kernel_init, ops=self.ops)
        r_RHK = project(shape_HK, name="position")(relative.embedding_RD.astype(q_BLHK.dtype))
        position_BLHK = q_BLHK + position_HK.astype(q_BLHK.dtype)
        term = self.make_distance_bias(position_BLHK, r_RHK, mask, bias)
        return q_BLHK + content_HK.astype(q_BLHK.dtype), term

    def make_distance_bias(
        self,
        q_BLHK: jax.Array,
        r_RHK: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | DistanceBias | None,
    ) -> DistanceBias:
        """Return the term of causal queries and of R = N distances.

        Raises:
          ValueError: there is a bias already.
        """
        if bias is not None:
            raise ValueError("attention by relative position takes no other bias of the scores")
        return DistanceBias(
            q_BLHK,
            r_RHK,
            num_keys=r_RHK.shape[0],
            scale=q_BLHK.shape[-1] ** -0.5 if self.scale is None else self.scale,
            step=mask.step if isinstance(mask, Mask) else None,
        )
