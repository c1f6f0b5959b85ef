"""Disentangled attention (He et al. 2020): contents and positions have vectors of their own.

The score of query i and key j is content to content, content to position and position to content,
(q_i k_j + q_i k'_d + k_j q'_d) / sqrt(3 K), where d is the bucket of the distance i - j, and k' and
q' are projections of its embedding by the maps of the contents (He et al. 2021, section 3).

A row has L^2 pairs and 2L - 1 distances. Scores are not looked up for each pair, but embeddings for
each distance, and their scores are shifted into place (`DistanceBias`): twice the products of a
term, and no gather of single numbers.

B batch   L length   S embeddings of buckets   R = 2L - 1 distances   D width   H heads
K head width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import numpy as np

from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.linear import Dense, ModuleFactory
from models.layers.masks import Mask, PairBias
from models.layers.relative.distance_bias import DistanceBias
from models.layers.relative.distance_buckets import group_distances


class DisentangledPositions(flax.struct.PyTreeNode):
    """What all layers share of the relative positions.

    embedding_SD: the embeddings of the buckets, the most negative distance first.
    max_distance: the distance of the last bucket.
    """

    embedding_SD: jax.Array
    max_distance: int = flax.struct.field(pytree_node=False)


class DisentangledBias(PairBias):
    """The terms of content to position and position to content.

    q_BLHK: the queries. k_BLHK: the keys.
    position_key_RHK: the key of each distance from query to key, the largest first.
    position_query_RHK: the query of each distance, in the same order.
    scale: the factor of both terms.
    """

    q_BLHK: jax.Array
    k_BLHK: jax.Array
    position_key_RHK: jax.Array
    position_query_RHK: jax.Array
    scale: float = flax.struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array of all pairs, [B, H, L, L]."""
        B, L, H, _ = self.q_BLHK.shape
        return B, H, L, L

    def make_dense(self) -> jax.Array:
        """Return the bias of each pair, float32 [B, H, L, L]."""
        make_bias = partial(DistanceBias, num_keys=self.shape[-1], scale=self.scale)
        to_position = make_bias(self.q_BLHK, self.position_key_RHK).make_dense()
        # From a key to a query the distance has the other sign.
        to_content = make_bias(self.k_BLHK, self.position_query_RHK[::-1]).make_dense()
        return to_position + to_content.swapaxes(-1, -2)


class DisentangledAttention(Attention):
    """Attention to contents and to relative positions, which `relative` has.

    position_dropout: of the embeddings of the buckets, with draws of each layer.
    """

    position_dropout: ModuleFactory = partial(Dropout, 0.0)

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        memory_BMD: jax.Array | None = None,
        train: bool = False,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | PairBias | None = None,
        relative: Any = None,
    ) -> jax.Array:
        """Return the output of the attention at each position of x, [B, L, D].

        Args: as in `Attention`; `relative` is a `DisentangledPositions`.

        Raises:
          ValueError: there is a memory or a bias, or as `find_head_shapes`.
        """
        if memory_BMD is not None or bias is not None:
            raise ValueError("disentangled attention takes no memory and no other bias")
        L, D = x_BLD.shape[1:]
        shape_HK, _ = self.find_head_shapes(D)
        project = partial(Dense, shape_HK, kernel_init=self.kernel_init, ops=self.ops)
        query, key, value = (project(name=name) for name in ("query", "key", "value"))
        out = Dense(
            D, num_contracting_dims=2, kernel_init=self.kernel_init, ops=self.ops, name="out"
        )

        embedding_SD = self.position_dropout(name="position_dropout")(
            relative.embedding_SD.astype(x_BLD.dtype), deterministic=not train, by_row=False
        )
        distance_R = np.arange(L - 1, -L, -1)
        row_R = find_rows(distance_R, len(embedding_SD), relative.max_distance)
        q_BLHK, k_BLHK = query(x_BLD), key(x_BLD)
        scale = (3 * shape_HK[1]) ** -0.5
        positions = DisentangledBias(
            q_BLHK, k_BLHK, key(embedding_SD)[row_R], query(embedding_SD)[row_R], scale
        )
        drop = self.dropout(deterministic=not train).bind_key()
        out_BLHK = self.ops.attend(
            q_BLHK, k_BLHK, value(x_BLD), mask=mask, bias=positions, scale=scale, drop=drop
        )
        return out(out_BLHK)


def find_rows(distance: np.ndarray, S: int, max_distance: int) -> np.ndarray:
    """Return the row of the embedding of each distance from query to key, below S.

    They are `group_distances` with S / 4 near ones, around row S / 2; the farthest distances have
    the last row, as in the authors' code.

    Args:
      distance: whole numbers, of any sign.
      S: the number of embeddings, a multiple of 4.
      max_distance: the distance of the last row.
    """
    group = group_distances(distance, S // 4, max_distance)
    return np.clip(S // 2 + group, 0, S - 1)
