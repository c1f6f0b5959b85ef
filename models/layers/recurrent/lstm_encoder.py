"""An encoder of LSTM layers, in one direction or in both.

B batch   M length   D width of the input   C cells   E width of the outputs: C, or 2 C
"""

from typing import Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.dropout import Dropout
from models.layers.linear import Initializer
from models.layers.ops import PLAIN, Ops
from models.layers.recurrent.lstm import UNIFORM, Lstm, LstmState

Direction = Literal["forward", "backward", "bidirectional"]
DIRECTIONS = {
    "forward": ("forward",),
    "backward": ("backward",),
    "bidirectional": ("forward", "backward"),
}


@flax.struct.dataclass
class EncodedSource:
    """What a decoder reads of a source.

    Attributes:
      states_BME: the outputs of the last layer at each token.
      layers: of each layer, the states after each token, leaves [B, M, C]; with two directions,
        the backward direction's.
    """

    states_BME: jax.Array
    layers: tuple[LstmState, ...]


class LstmEncoder(nn.Module):
    """Layers of LSTMs; of both directions the outputs are concatenated.

    num_cells: C. depth: the number of layers. direction: in which order a row is read.
    dropout: rate, of the input of each layer.
    """

    num_cells: int
    depth: int
    direction: Direction
    dropout: float = 0.0
    kernel_init: Initializer = UNIFORM
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BMD: jax.Array,
        attention_mask: jax.Array,
        segment_ids: jax.Array | None,
        train: bool,
    ) -> EncodedSource:
        """Return what a decoder reads of the rows x.

        Args:
          x_BMD: embeddings.
          attention_mask: bool [B, M], False on padding.
          segment_ids: int32 [B, M], of packed rows.
          train: whether dropout is applied.
        """
        hidden_states, layers = [x_BMD], []
        for i in range(self.depth):
            x_BMD = Dropout(self.dropout, ops=self.ops)(x_BMD, deterministic=not train)
            directions = [
                self.read_rows(name, i, x_BMD, attention_mask, segment_ids)
                for name in DIRECTIONS[self.direction]
            ]
            outputs = [states.output_BH for states in directions]
            x_BMD = self.ops.constrain(jnp.concatenate(outputs, axis=-1))
            hidden_states.append(x_BMD)
            layers.append(directions[-1])
        self.sow("intermediates", "hidden_states", tuple(hidden_states))
        return EncodedSource(x_BMD, tuple(layers))

    def read_rows(
        self,
        direction: str,
        layer: int,
        x_BMD: jax.Array,
        attention_mask: jax.Array,
        segment_ids: jax.Array | None,
    ) -> LstmState:
        """Return the states of a layer in one direction, leaves [B, M, C] in the dtype of x."""
        lstm = Lstm(
            self.num_cells,
            reverse=direction == "backward",
            kernel_init=self.kernel_init,
            ops=self.ops,
            name=f"{direction}_{layer}",
        )
        states, _ = lstm.compute_states(x_BMD, None, attention_mask, segment_ids)
        return jax.tree.map(lambda x: x.astype(x_BMD.dtype), states)
