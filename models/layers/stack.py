"""A stack of layers: unrolled, or scanned over stacked parameters; with or without sharing.

B batch   L length   D width
"""

from typing import Any

import flax.linen as nn
import jax

from models.layers.cache import CACHE, CARRY, MEMORY, SEGMENT_MEMORY
from models.layers.linear import ModuleFactory
from models.layers.ops import PLAIN, Ops


class Stack(nn.Module):
    """`depth` layers, each applied to the output of the one before.

    The parameters are in `layers` with a leading axis (scan), in `layer_0`, `layer_1`, ..., or in
    `layer` (share).

    layer: the constructor of a layer.
    depth: the number of layers; 0 where `first` and `last` are all.
    scan: compile one layer instead of `depth`; the result is the same except for dropout masks.
    share: all layers have the same parameters (Lan et al. 2020, section 3.1).
    remat: keep only each layer's input for the backward pass and recompute the rest (Chen et al.
      2016).
    first, last: layers of another kind before and after these, with parameters of their own in
      `first` and `last`.
    ops: its `constrain` is applied to the activations at the top of each layer.
    """

    layer: ModuleFactory
    depth: int
    scan: bool = True
    share: bool = False
    remat: bool = False
    first: ModuleFactory | None = None
    last: ModuleFactory | None = None
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        by_layer: Any = None,
        **arguments: Any,
    ) -> jax.Array:
        """Return the last layer's activations [B, L, D].

        Args:
          x_BLD: the first layer's input.
          train: whether dropout is applied.
          by_layer: {argument: array [layers, ...]}, of which each layer gets its own entry.
          **arguments: passed to every layer.
        """
        by_layer = dict(by_layer or {})

        def apply_layer(layer: Any, x_BLD: jax.Array, own: Any) -> tuple[jax.Array, None]:
            return layer(self.ops.constrain(x_BLD), train, **arguments, **own), None

        if self.remat:
            # A scan keeps the recomputation separate by itself.
            apply_layer = nn.remat(apply_layer, prevent_cse=not self.scan)
        shared = self.layer(name="layer") if self.share else None
        if self.first is not None:
            x_BLD, _ = apply_layer(self.first(name="first"), x_BLD, {})
        if self.scan and self.depth:
            broadcast: dict[str, Any] = {"variable_broadcast": "params"} if self.share else {}
            # The rows of a batch are the first axis of what a model keeps between batches.
            stacked: dict[Any, Any] = {CACHE: 0, MEMORY: 0, SEGMENT_MEMORY: 1, CARRY: 1}
            if not self.share:
                stacked["params"] = 0
            apply_layers = nn.scan(
                apply_layer,
                length=self.depth,
                split_rngs={"params": not self.share, "dropout": True},
                metadata_params={nn.PARTITION_NAME: "layers"},
                variable_axes=stacked,
                **broadcast,
            )
            x_BLD, _ = apply_layers(shared or self.layer(name="layers"), x_BLD, by_layer)
        else:
            for i in range(self.depth):
                own = {name: values[i] for name, values in by_layer.items()}
                x_BLD, _ = apply_layer(shared or self.layer(name=f"layer_{i}"), x_BLD, own)
        if self.last is not None:
            x_BLD, _ = apply_layer(self.last(name="last"), x_BLD, {})
        return x_BLD
