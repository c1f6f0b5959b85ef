"""One layer of a Transformer, as its residual equations. A new equation is a new class.

B batch   L length   M memory length   D width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax

from models.layers.dropout import Dropout, PathDropout
from models.layers.linear import ModuleFactory
from models.layers.masks import Mask
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops


class PostNormLayer(nn.Module):
    """x = norm(x + f(x)), as in the Transformer (Vaswani et al. 2017, section 3.1) and BERT.

    With `cross` it is a decoder's layer, which also attends to `memory`.
    dropout: of the output of each sublayer.
    """

    attention: ModuleFactory
    mlp: ModuleFactory
    cross: ModuleFactory | None = None
    norm: ModuleFactory = LayerNorm
    dropout: ModuleFactory = partial(Dropout, 0.0)

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | None = None,
        memory_BMD: jax.Array | None = None,
        memory_mask: Mask | jax.Array | None = None,
        **shared: Any,
    ) -> jax.Array:
        """Return activations [B, L, D].

        Args:
          x_BLD: activations.
          train: whether dropout is applied.
          mask: of the self-attention, as in `models.layers.ops.attend`.
          bias: of the self-attention, as in `models.layers.ops.attend`.
          memory_BMD: what the cross-attention attends to.
          memory_mask: of the cross-attention.
          **shared: what the self-attentions of all layers read, such as `relative` of
            `models.layers.attention.Attention`.
        """
        drop = self.dropout(deterministic=not train)
        x = x_BLD
        attend = self.attention(name="attention")
        x = self.norm(name="attention_norm")(
            x + drop(attend(x, train=train, mask=mask, bias=bias, **shared))
        )
        if self.cross is not None:
            y = self.cross(name="cross")(x, memory_BMD, train=train, mask=memory_mask)
            x = self.norm(name="cross_norm")(x + drop(y))
        x = self.norm(name="mlp_norm")(x + drop(self.mlp(name="mlp")(x, train)))
        return x


class PreNormLayer(nn.Module):
    """x = x + f(norm(x)), as in GPT-2 (Radford et al. 2019, section 2.3) and T5.

    With `cross` it is a decoder's layer, which also attends to `memory`.
    dropout: of the output of each sublayer.
    mlp_dropout: of the output of the feed-forward network; `dropout` by default.
    norms_input: whether the attention reads norm(x); a first layer's x may be normed already.
    ops: its `keep_rows` draws the rows that skip a sublayer.
    """

    attention: ModuleFactory
    mlp: ModuleFactory
    cross: ModuleFactory | None = None
    norm: ModuleFactory = LayerNorm
    dropout: ModuleFactory = partial(Dropout, 0.0)
    mlp_dropout: ModuleFactory | None = None
    norms_input: bool = True
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | None = None,
        memory_BMD: jax.Array | None = None,
        memory_mask: Mask | jax.Array | None = None,
        path_rate: jax.Array | None = None,
        **shared: Any,
    ) -> jax.Array:
        """Return activations [B, L, D].

        Args: as in `PostNormLayer`, and
          path_rate: the probability with which a row skips each sublayer; None: none does.
        """
        drop = self.dropout(deterministic=not train)
        drop_mlp = self.mlp_dropout(deterministic=not train) if self.mlp_dropout else drop
        path = None
        if path_rate is not None:
            path = partial(PathDropout(self.ops, name="path"), rate=path_rate)

        def add(x_BLD: jax.Array, y_BLD: jax.Array) -> jax.Array:
            return x_BLD + (y_BLD if path is None else path(y_BLD))

        x = x_BLD
        y = self.norm(name="attention_norm")(x) if self.norms_input else x
        attend = self.attention(name="attention")
        x = add(x, drop(attend(y, train=train, mask=mask, bias=bias, **shared)))
        if self.cross is not None:
            y = self.norm(name="cross_norm")(x)
            x = add(x, drop(self.cross(name="cross")(y, memory_BMD, train=train, mask=memory_mask)))
        y = self.norm(name="mlp_norm")(x)
        return add(x, drop_mlp(self.mlp(name="mlp")(y, train)))


class SandwichLayer(nn.Module):
    """x = x + norm(f(norm(x))): norms before and after each sublayer, as in Gemma 2 (section 2).

    With `cross` it is a decoder's layer, which also attends to `memory`.
    dropout: of the output of each sublayer.
    """

    attention: ModuleFactory
    mlp: ModuleFactory
    cross: ModuleFactory | None = None
    norm: ModuleFactory = LayerNorm
    dropout: ModuleFactory = partial(Dropout, 0.0)

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        mask: Mask | jax.Array | None = None,
        memory_BMD: jax.Array | None = None,
        memory_mask: Mask | jax.Array | None = None,
        **shared: Any,
    ) -> jax.Array:
        """Return activations [B, L, D]. Args: as in `PostNormLayer`."""
        drop = self.dropout(deterministic=not train)
        x = x_BLD
        y = self.norm(name="attention_norm")(x)
        y = self.attention(name="attention")(y, train=train, mask=mask, **shared)
        x = x + drop(self.norm(name="attention_out_norm")(y))
        if self.cross is not None:
            y = self.norm(name="cross_norm")(x)
            y = self.cross(name="cross")(y, memory_BMD, train=train, mask=memory_mask)
            x = x + drop(self.norm(name="cross_out_norm")(y))
        y = self.mlp(name="mlp")(self.norm(name="mlp_norm")(x), train)
        return x + drop(self.norm(name="mlp_out_norm")(y))
