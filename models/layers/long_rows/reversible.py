"""Reversible layers (Gomez et al. 2017; Kitaev et al. 2020, section 3).

A layer maps two streams of activations: y1 = x1 + F(x2), y2 = x2 + G(y1). Here F is attention and G
a feed-forward network. The streams are float32, so that x2 = y2 - G(y1) holds up to rounding.

B batch   L length   D width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.cache import CACHE
from models.layers.dropout import Dropout
from models.layers.linear import ModuleFactory
from models.layers.masks import Mask
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops, apply_reversible

Streams = tuple[jax.Array, jax.Array]


class ReversibleLayer(nn.Module):
    """F(x) = dropout(attention(norm(x))) and G(x) = dropout(mlp(norm(x))).

    make_attention: constructor of F's attention, which takes activations, `train`, a mask and
      choices, and returns activations and choices, as `long_rows.hashed_attention` does.
    make_mlp: constructor of G's network.
    """

    make_attention: ModuleFactory
    make_mlp: ModuleFactory
    make_norm: ModuleFactory = LayerNorm
    make_dropout: ModuleFactory = partial(Dropout, 0.0)
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make both residual functions."""
        self.attention_norm, self.mlp_norm = self.make_norm(), self.make_norm()
        self.attention, self.mlp = self.make_attention(), self.make_mlp()
        self.attention_drop, self.mlp_drop = self.make_dropout(), self.make_dropout()

    def __call__(self, streams: Streams, train: bool, mask: Mask, dtype: Any) -> Streams:
        """Return y1 and y2. F and G are computed in `dtype`."""
        x1_BLD, x2_BLD = streams
        y1_BLD = x1_BLD + self.compute_attention(x2_BLD, train, mask, dtype)[0]
        return y1_BLD, x2_BLD + self.compute_mlp(y1_BLD, train, dtype)

    def compute_attention(
        self, x_BLD: jax.Array, train: bool, mask: Mask, dtype: Any, choices: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return F(x) in the dtype of x, and the choices of its attention.

        choices: of an earlier call, which are not made again.
        """
        z_BLD = self.attention_norm(self.ops.constrain(x_BLD).astype(dtype))
        y_BLD, choices = self.attention(z_BLD, train=train, mask=mask, choices=choices)
        return self.attention_drop(y_BLD, deterministic=not train).astype(x_BLD.dtype), choices

    def compute_mlp(self, x_BLD: jax.Array, train: bool, dtype: Any) -> jax.Array:
        """Return G(x) in the dtype of x."""
        y_BLD = self.mlp(self.mlp_norm(x_BLD.astype(dtype)), train)
        return self.mlp_drop(y_BLD, deterministic=not train).astype(x_BLD.dtype)


class ReversibleGroup(nn.Module):
    """Several layers one after the other, as one entry of a stack that is scanned.

    layers: the constructor of each, a `ReversibleLayer`.
    """

    layers: tuple[ModuleFactory, ...]

    def setup(self) -> None:
        """Make the layers."""
        self.block = [layer() for layer in self.layers]

    def __call__(self, streams: Streams, train: bool, mask: Mask, dtype: Any) -> Streams:
        """Return both streams after all layers. Arguments: as in `ReversibleLayer`."""
        for layer in self.block:
            streams = layer(streams, train, mask, dtype)
        return streams

    def compute_residual(
        self, index: int, x_BLD: jax.Array, train: bool, mask: Mask, dtype: Any, choices: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return the result of one of the functions F, G, F, ... on x [B, L, D], and its choices.

        index: the number of the function in the group. The other arguments are as in
          `ReversibleLayer`.
        """
        layer = self.block[index // 2]
        if index % 2:
            return layer.compute_mlp(x_BLD, train, dtype), None
        return layer.compute_attention(x_BLD, train, mask, dtype, choices)


class ReversibleStack(nn.Module):
    """A reversible stack of `depth` groups of layers; its parameters are laid out as in `Stack`.

    layers: the constructors of the layers of a group.
    scan: compile one group instead of `depth`; the result is the same.
    remat: keep only the outputs of the last layer for the backward pass of training, which
      recomputes the earlier layers' outputs from them (`Ops.apply_reversible`).
    """

    layers: tuple[ModuleFactory, ...]
    depth: int
    scan: bool = True
    remat: bool = True
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool, mask: Mask) -> jax.Array:
        """Return both streams side by side, [B, L, 2 D]. Each of them begins as x."""
        make_group = partial(ReversibleGroup, self.layers)
        x1_BLD = x2_BLD = x_BLD.astype(jnp.float32)
        if train and not self.is_initializing():
            streams = self.apply_in_training(
                make_group(parent=None), x1_BLD, x2_BLD, mask, x_BLD.dtype
            )
        elif self.scan:
            apply_group = nn.scan(
                lambda group, streams, _: (group(streams, train, mask, x_BLD.dtype), None),
                length=self.depth,
                split_rngs={"params": True, "dropout": True},
                metadata_params={nn.PARTITION_NAME: "layers"},
                variable_axes={"params": 0, CACHE: 0},
            )
            streams, _ = apply_group(make_group(name="layers"), (x1_BLD, x2_BLD), None)
        else:
            streams = x1_BLD, x2_BLD
            for i in range(self.depth):
                streams = make_group(name=f"layer_{i}")(streams, train, mask, x_BLD.dtype)
        return jnp.concatenate(streams, axis=-1).astype(x_BLD.dtype)

    def apply_in_training(
        self, group: ReversibleGroup, x1_BLD: jax.Array, x2_BLD: jax.Array, mask: Mask, dtype: Any
    ) -> Streams:
        """Return both streams after all layers, with dropout; each layer has a key of its own.

        The layers are made pure functions of their parameters and keys for `Ops.apply_reversible`.
        """
        key = self.make_rng("dropout")
        params = self.variables["params"]
        if self.scan:
            stacked = params["layers"]
        else:
            groups = [params[f"layer_{i}"] for i in range(self.depth)]
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups)
        keys = jax.random.key_data(jax.random.split(key, self.depth))

        def compute_residual(
            index: int, layer: Any, mask: Mask, x_BLD: jax.Array, choices: Any
        ) -> tuple[jax.Array, Any]:
            layer_key = jax.random.wrap_key_data(layer["key"], impl=jax.random.key_impl(key))
            return group.apply(
                {"params": layer["params"]},
                *(index, x_BLD, True, mask, dtype, choices),
                rngs={"dropout": layer_key},
                method="compute_residual",
            )

        residuals = [partial(compute_residual, index) for index in range(2 * len(self.layers))]
        run = self.ops.apply_reversible if self.remat else apply_reversible
        return run(residuals, {"params": stacked, "key": keys}, mask, x1_BLD, x2_BLD)
