"""Depth: the same layer many times, unrolled or as one compiled body that is scanned over its weights, with weights of their own or not.

B batch   L length   D width
"""

from typing import Any

import flax.linen as nn

from models.layers.cache import CACHE, MEMORY
from models.layers.linear import Part
from models.layers.ops import PLAIN, Ops


class Stack(nn.Module):
    """`depth` layers in a row; parameters in `layers` with a leading axis (scan), or in `layer_0`, `layer_1`, ..., or in `layer` (share).

    scan: compile one layer instead of `depth`; the result is the same, dropout masks aside.
    share: all layers have the same parameters (Lan et al. 2020, section 3.1).
    remat: keep only each layer's input for the backward pass and compute the rest again (Chen et al. 2016).
    ops: its `constrain` is applied to the activations at the top of each layer.
    Every layer is called with the activations, `train`, and the named arguments of the call.
    """

    layer: Part
    depth: int
    scan: bool = True
    share: bool = False
    remat: bool = False
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD, train, **arguments):
        def body(layer, x_BLD, _):
            return layer(self.ops.constrain(x_BLD), train, **arguments), None

        if self.remat:
            body = nn.remat(
                body, prevent_cse=not self.scan
            )  # a scan keeps the two computations apart by itself
        shared = self.layer(name="layer") if self.share else None
        if self.scan:
            weights: dict[str, Any] = {"variable_broadcast": "params"} if self.share else {}
            own: dict[Any, Any] = (
                {CACHE: 0, MEMORY: 0} if self.share else {"params": 0, CACHE: 0, MEMORY: 0}
            )
            body = nn.scan(
                body,
                length=self.depth,
                split_rngs={"params": not self.share, "dropout": True},
                metadata_params={nn.PARTITION_NAME: "layers"},
                variable_axes=own,
                **weights,
            )
            return body(shared or self.layer(name="layers"), x_BLD, None)[0]
        for i in range(self.depth):
            x_BLD, _ = body(shared or self.layer(name=f"layer_{i}"), x_BLD, None)
        return x_BLD
