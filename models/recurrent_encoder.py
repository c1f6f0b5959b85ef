"""Recurrent encoders of words: an Elman network, an LSTM, or one in each direction.

    h_t = tanh(W x_t + U h_(t-1) + b)     (Elman 1990, section 2; the LSTM: layers/recurrent)

A head scores the last output of each direction (Schuster and Paliwal 1997; Graves and Schmidhuber
2005 for two), or the mean or the maximum of all.

B batch   L length   D width   C cells   H outputs: C, or 2 C in two directions
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.recurrent_encoder import RecurrentEncoderConfig
from models.layers.linear import Dense
from models.layers.ops import PLAIN, Ops
from models.layers.recurrent.lstm import Lstm
from models.layers.word_encoder import WordEncoder

# Uniform between -1 / sqrt(C) and 1 / sqrt(C) for kernels [..., C], as in `torch.nn.RNN`.
UNIFORM = nn.initializers.variance_scaling(1 / 3, "fan_out", "uniform")


class Elman(nn.Module):
    """One layer that reads rows in one direction.

    num_cells: C.
    reverse: whether rows are read from their ends.
    """

    num_cells: int
    reverse: bool = False
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the linear maps of the input and of the previous output."""
        linear = partial(Dense, self.num_cells, kernel_init=UNIFORM, ops=self.ops)
        self.input = linear()
        self.recurrent = linear(use_bias=False)

    def __call__(self, x_BLD: jax.Array, is_read_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the outputs [B, L, C], 0 where nothing is read, and the last one [B, C]."""
        read_row = nn.scan(
            Elman.read_position,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
            reverse=self.reverse,
        )
        first_BC = jnp.zeros((len(x_BLD), self.num_cells), jnp.float32)
        last_BC, h_BLC = read_row(self, first_BC, (self.input(x_BLD), is_read_BL))
        return self.ops.constrain(h_BLC.astype(x_BLD.dtype)), last_BC

    def read_position(
        self, h_BC: jax.Array, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Return the state after a position, and its output: 0 if the position is not read."""
        x_BC, is_read_B = inputs
        sum_BC = x_BC + self.recurrent(h_BC.astype(x_BC.dtype))
        new_BC = jnp.tanh(sum_BC.astype(jnp.float32))
        is_read_B1 = is_read_B[:, None]
        return jnp.where(is_read_B1, new_BC, h_BC), jnp.where(is_read_B1, new_BC, 0.0)


class DirectionalLayer(nn.Module):
    """One layer in one direction or in both.

    cell: "lstm" or "elman".
    """

    cell: str
    num_cells: int
    bidirectional: bool
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, is_read_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the outputs [B, L, H], and the last one that each direction reads, [B, H]."""
        outputs, lasts = [], []
        for name in ("forward", "backward")[: 1 + self.bidirectional]:
            reverse = name == "backward"
            if self.cell == "lstm":
                layer = Lstm(self.num_cells, reverse=reverse, ops=self.ops, name=name)
                h_BLC, state = layer(x_BLD, attention_mask=is_read_BL)
                last_BC = state.output_BH
            else:
                layer = Elman(self.num_cells, reverse, self.ops, name=name)
                h_BLC, last_BC = layer(x_BLD, is_read_BL)
            outputs.append(h_BLC)
            lasts.append(last_BC.astype(h_BLC.dtype))
        return jnp.concatenate(outputs, axis=-1), jnp.concatenate(lasts, axis=-1)


class RecurrentEncoder(WordEncoder):
    """Layers of recurrence, pooled over the words."""

    config: RecurrentEncoderConfig

    def setup(self) -> None:
        """Make the embeddings and the layers."""
        super().setup()
        c = self.config
        layer = partial(DirectionalLayer, c.cell, c.cells, c.bidirectional, self.ops)
        self.layer = [layer() for _ in range(c.depth)]

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last layer's outputs [B, L, H], and the pooled row [B, H]."""
        c = self.config
        x_BLD, is_read_BL = self.embed_words(token_ids, attention_mask, train)
        pooled_BH = x_BLD[:, 0]
        for layer in self.layer:
            x_BLD, pooled_BH = layer(x_BLD, is_read_BL)
        if c.pooling != "last":
            pooled_BH = self.pool(x_BLD, is_read_BL)
        return x_BLD, pooled_BH

    def pool(self, x_BLH: jax.Array, is_read_BL: jax.Array) -> jax.Array:
        """Return the mean or the maximum of the words' outputs, [B, H]; 0 without any word."""
        num_B1 = is_read_BL.sum(axis=1, keepdims=True).astype(jnp.float32)
        if self.config.pooling == "mean":  # Outputs are 0 where nothing is read.
            mean_BH = x_BLH.astype(jnp.float32).sum(axis=1) / jnp.maximum(num_B1, 1)
            return mean_BH.astype(x_BLH.dtype)
        largest_BH = jnp.where(is_read_BL[..., None], x_BLH, -1).max(axis=1)  # Outputs exceed -1.
        return jnp.where(num_B1 > 0, largest_BH, 0).astype(x_BLH.dtype)
