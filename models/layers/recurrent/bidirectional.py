"""Layers of LSTMs in both directions that do not read each other (Peters et al. 2018, section 3.1).

B batch   L length   D width of a direction
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.dropout import Dropout
from models.layers.ops import PLAIN, Ops
from models.layers.recurrent.layer import RecurrentLayer
from models.layers.recurrent.lstm import Lstm

Layers = list[tuple[jax.Array, jax.Array]]  # (forward, backward) [B, L, D] of words and layers


class ForwardBackwardLstm(nn.Module):
    """Layers that read rows from their beginnings, and others that read from their ends.

    Their states are in the collection `CARRY`, as in `RecurrentLayer`.

    num_cells, width, clip: of each `Lstm`; the width is its projection's.
    depth: the number of layers of each direction.
    residual: whether a layer above the first adds its input to its output.
    dropout: rate, of the input of each layer.
    """

    num_cells: int
    width: int
    depth: int
    clip: float | None = None
    residual: bool = False
    dropout: float = 0.0
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the layers."""

        def make_layers(reverse: bool) -> list[RecurrentLayer]:
            lstm = partial(
                Lstm,
                self.num_cells,
                projection=self.width,
                clip=self.clip,
                forget_bias=1.0,
                reverse=reverse,
                ops=self.ops,
            )
            dropout = partial(Dropout, self.dropout, ops=self.ops)
            return [
                RecurrentLayer(lstm, dropout, residual=self.residual and i > 0)
                for i in range(self.depth)
            ]

        self.forward_layer = make_layers(reverse=False)
        self.backward_layer = make_layers(reverse=True)

    def __call__(
        self,
        forward_BLD: jax.Array,
        backward_BLD: jax.Array,
        train: bool,
        **arguments: Any,
    ) -> Layers:
        """Return the inputs and the outputs of each layer.

        Args:
          forward_BLD: the words that the forward direction reads.
          backward_BLD: the activations of the backward direction, which reads the last one first.
          train: whether dropout is applied.
          **arguments: `is_continued` and `attention_mask` of a `RecurrentLayer`.
        """
        layers = [(forward_BLD, backward_BLD)]
        for forward, backward in zip(self.forward_layer, self.backward_layer, strict=True):
            forward_BLD = forward(self.ops.constrain(forward_BLD), train, **arguments)
            backward_BLD = backward(self.ops.constrain(backward_BLD), train, **arguments)
            layers.append((forward_BLD, backward_BLD))
        both = tuple(jnp.concatenate(layer, axis=-1) for layer in layers)
        self.sow("intermediates", "hidden_states", both)
        return layers
