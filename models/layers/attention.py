"""Multi-head attention (Vaswani et al. 2017, section 3.2).

B batch   L query length   M key length   D width   H heads   G key heads   K head width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Initializer, ModuleFactory
from models.layers.masks import Mask, PairBias
from models.layers.ops import PLAIN, Ops
from models.layers.rotary import Rotation, rotate


class Attention(nn.Module):
    """Project x to queries, keys and values, attend, and project back (section 3.2.2).

    A paper that changes the softmax passes its own `ops.attend`.
    """

    num_heads: int
    head_width: int | None = None  # D / H by default
    use_bias: bool = True
    out_bias: bool | None = None  # of the output projection; `use_bias` by default
    kernel_init: Initializer = TRUNCATED
    query_init: Initializer | None = None  # `kernel_init` by default
    out_init: Initializer | None = None  # `kernel_init` by default
    dropout: ModuleFactory = partial(Dropout, 0.0)  # of the attention weights
    scale: float | None = None  # of the scores; K ** -0.5 by default
    soft_cap: float | None = None  # bound of the scores, by a tanh; None: none
    # Heads of keys and values, G; each serves H / G query heads that follow one another (Ainslie et
    # al. 2023, section 2.2). H by default.
    num_key_heads: int | None = None
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        memory_BMD: jax.Array | None = None,
        train: bool = False,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | PairBias | None = None,
        relative: Any = None,
        projection: Any = None,
        rotation: Rotation | None = None,
    ) -> jax.Array:
        """Return the output of the attention at each position of x, [B, L, D].

        Args:
          x_BLD: activations from which the queries are computed.
          memory_BMD: activations from which keys and values are computed; x itself by default.
          train: whether the attention weights are dropped out.
          mask: a `Mask`, or bool broadcastable to [B, H, L, M], True where a query may attend.
          bias: float broadcastable to [B, H, L, M], or a `PairBias`; added to the scores.
          relative: what the methods of a subclass need, such as embeddings of distances.
          projection: what `project_source` of a subclass needs and all layers share.
          rotation: rotary positions, by which queries and keys are turned.

        Raises:
          ValueError: as `find_head_shapes`.
        """
        D = x_BLD.shape[-1]
        shape_HK, shape_GK = self.find_head_shapes(D)
        project = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init, ops=self.ops)
        query = project(shape_HK, kernel_init=self.query_init or self.kernel_init, name="query")
        out = partial(
            project,
            use_bias=self.use_bias if self.out_bias is None else self.out_bias,
            num_contracting_dims=2,
            kernel_init=self.out_init or self.kernel_init,
        )

        source_BMD = self.join_memory(x_BLD, relative) if memory_BMD is None else memory_BMD
        q_BLHK = query(x_BLD)
        k_BMGK, v_BMGK, mask = self.project_source(
            partial(project, shape_GK), source_BMD, mask, projection
        )
        if rotation is not None:
            q_BLHK, k_BMGK = rotate(q_BLHK, rotation), rotate(k_BMGK, rotation)
        q_BLHK, bias = self.add_terms(q_BLHK, mask, bias, relative)
        # None without dropout: some attention kernels have no dropout.
        drop = self.dropout(deterministic=not train).bind_key()
        # An `attend` that cannot cap is a TypeError, and no other result.
        cap = {} if self.soft_cap is None else {"soft_cap": self.soft_cap}
        out_BLHK = self.ops.attend(
            q_BLHK, k_BMGK, v_BMGK, mask=mask, bias=bias, scale=self.scale, drop=drop, **cap
        )
        return out(D, name="out")(out_BLHK)

    def find_head_shapes(self, D: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (H, K) of the queries, and (G, K) of keys and values.

        Raises:
          ValueError: D does not divide into `num_heads` heads, and `head_width` is not given; or
            the query heads do not divide into groups for `num_key_heads` key heads.
        """
        H, G = self.num_heads, self.num_key_heads or self.num_heads
        if self.head_width is None and D % H:
            raise ValueError(f"a width of {D} does not divide into {H} heads")
        if H % G:
            raise ValueError(
                f"{H} query heads do not divide into groups for {G} key heads: model.num_key_heads "
                "must divide model.num_heads"
            )
        K = self.head_width or D // H
        return (H, K), (G, K)

    def join_memory(self, x_BLD: jax.Array, relative: Any) -> jax.Array:
        """Return what keys and values are projected from (x by default).

        A subclass may prepend a memory.
        """
        return x_BLD

    def project_source(
        self,
        project: ModuleFactory,
        source_BMD: jax.Array,
        mask: Mask | jax.Array | None,
        projection: Any,
    ) -> tuple[jax.Array, jax.Array, Mask | jax.Array | None]:
        """Return the keys and values [B, M, G, K] of a source, and their mask.

        A subclass may return fewer of them than the source has positions.

        project: the constructor of a linear map from D to (G, K); its parameters get its `name`.
        """
        return project(name="key")(source_BMD), project(name="value")(source_BMD), mask

    def add_terms(
        self,
        q_BLHK: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | PairBias | None,
        relative: Any,
    ) -> tuple[jax.Array, jax.Array | PairBias | None]:
        """Return the queries and the bias of the scores, to which a subclass may add terms."""
        return q_BLHK, bias
