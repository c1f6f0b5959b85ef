"""The Sparse Transformer (Child et al. 2019): rows of ten thousand tokens by sparse attention.

A token attends to those near it and to some of each block before, in n sqrt(n) operations
(sections 4.2 and 4.3). The decoder is pre-norm, with an initialisation for many layers.

B batch   L length   D width   V vocabulary   N rows of the grid of positions   S columns, the
stride   P positions
"""

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.sparse_transformer import SparseTransformerConfig
from models.layers.attention import Attention
from models.layers.block_sparse import SparsePattern
from models.layers.cache import DecodingStep, look_up_positions
from models.layers.dropout import Dropout
from models.layers.linear import Dense, Embed, ModuleFactory
from models.layers.masks import Mask, make_causal_mask
from models.layers.mlp import Mlp
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def gelu_sigmoid(x: jax.Array) -> jax.Array:
    """Return x * sigmoid(1.702 x), an approximation of GELU (section 5.2), computed in float32."""
    in_float32 = x.astype(jnp.float32)
    return (in_float32 * jax.nn.sigmoid(1.702 * in_float32)).astype(x.dtype)


def scale_fan_in(scale: float) -> nn.initializers.Initializer:
    """Return the initializer of a kernel [I, O]: N(0, scale / sqrt(I)) (section 6)."""
    return nn.initializers.variance_scaling(scale**2, "fan_in", "normal")


def make_pattern(config: SparseTransformerConfig, part: Any) -> SparsePattern:
    """Return the pattern of a layer; part: as in `SparsePattern`."""
    c = config
    return SparsePattern(c.pattern, c.stride, c.summary, c.subblocks, part)


def make_layer(config: SparseTransformerConfig, ops: Ops) -> partial[PreNormLayer]:
    """Return the constructor of a layer (section 5.2).

    The 2 * depth kernels that add to the residual stream are smaller by the square root of their
    number.
    """
    c = config
    kernel_init, residual_init = scale_fan_in(0.125), scale_fan_in(0.125 / math.sqrt(2 * c.depth))
    return partial(
        PreNormLayer,
        attention=partial(
            Attention, c.num_heads, kernel_init=kernel_init, out_init=residual_init, ops=ops
        ),
        mlp=partial(
            Mlp,
            c.mlp,
            activation=gelu_sigmoid,
            kernel_init=kernel_init,
            down_init=residual_init,
            ops=ops,
        ),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
    )


class FirstThenSecond(nn.Module):
    """A layer of the first and one of the second pattern, as one layer of a stack that is scanned.

    Section 5.1: one pattern a residual block, interleaved.
    layer: the constructor of either.
    """

    config: SparseTransformerConfig
    layer: ModuleFactory
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool, mask: Mask) -> jax.Array:
        """Return activations [B, L, D]; mask: the causal mask."""
        first, second = (
            mask.replace(pattern=make_pattern(self.config, part)) for part in ("first", "second")
        )
        x_BLD = self.layer(name="first")(x_BLD, train, mask=first)
        return self.layer(name="second")(self.ops.constrain(x_BLD), train, mask=second)


class GridEmbeddings(nn.Module):
    """token + row + column, where position i is in row i div l and column i mod l (section 5.3).

    l is the stride: the embeddings show the layers the grid of their patterns.
    """

    config: SparseTransformerConfig
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the three tables (section 6)."""
        c, normal = self.config, nn.initializers.normal
        std, num_position_tables = 0.125 / math.sqrt(c.width), 2
        self.token_embedding = Embed(c.vocab, c.width, normal(std), self.ops)
        position_init = normal(std / math.sqrt(num_position_tables))
        self.row_embedding = Embed(math.ceil(c.length / c.stride), c.width, position_init)
        self.column_embedding = Embed(c.stride, c.width, position_init)

    def __call__(self, token_ids: jax.Array, step: DecodingStep | None = None) -> jax.Array:
        """Return the embeddings [B, L, D] of int32 ids [B, L].

        Raises:
          ValueError: L is above the model's length.
        """
        L, c = token_ids.shape[1], self.config
        if L > c.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {c.length} positions of the model "
                "(model.length)"
            )
        grid_NSD = self.row_embedding.embedding[:, None] + self.column_embedding.embedding
        table_PD = grid_NSD.reshape(-1, c.width)[: c.length]
        return self.token_embedding(token_ids) + look_up_positions(table_PD, L, step)


class SparseTransformer(Model):
    """The language model (section 5).

    Raises:
      ValueError: the depth is odd and the patterns are not merged, or the subblocks of summaries
        exceed the stride.
    """

    config: SparseTransformerConfig

    def setup(self) -> None:
        """Make embeddings, layers, final norm and output."""
        c = self.config
        layer = make_layer(c, self.ops)
        if not c.merged:
            if c.depth % 2:
                raise ValueError(
                    f"a depth of {c.depth} is odd; with model.merged=false it must be even, "
                    "because layers of the two patterns alternate (model.depth)"
                )
            layer = partial(FirstThenSecond, c, layer, self.ops)
        self.embeddings = GridEmbeddings(c, self.ops)
        self.decoder = Stack(layer, c.num_stacked, scan=c.scan, remat=c.remat, ops=self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops)
        self.lm_head = Dense(
            c.vocab,
            use_bias=False,
            kernel_init=nn.initializers.zeros,
            out_dtype=jnp.float32,
            ops=self.ops,
        )

    def __call__(
        self, token_ids: jax.Array, segment_ids: jax.Array | None = None, train: bool = False
    ) -> jax.Array:
        """Return the logits of the token after each position, float32 [B, L, V].

        token_ids: int32 [B, L]. Padding is allowed on the right: no token attends to it.
        segment_ids: see `compute_states`.
        """
        return self.compute_logits(self.compute_states(token_ids, segment_ids, train))

    def compute_states(
        self,
        token_ids: jax.Array,
        segment_ids: jax.Array | None = None,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the states [B, L, D] for `compute_logits`; that at l depends on tokens up to l.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          segment_ids: int32 [B, L], the text of each token in a packed row; a token attends to its
            own. Positions and patterns count from the start of the row. None: one text a row.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.
        """
        mask = make_causal_mask(segment_ids_BL=segment_ids, step=step)
        if self.config.merged:
            mask = mask.replace(pattern=make_pattern(self.config, "both"))
        x_BLD = self.decoder(self.embeddings(token_ids, step), train, mask=mask)
        return self.norm(x_BLD)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.lm_head(x_BLD)
