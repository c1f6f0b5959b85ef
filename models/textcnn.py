"""Convolutions over the words of a row (Kim 2014; Waibel et al. 1989).

    c_i = f(w . x_(i:i+h-1) + b)          a filter over h words (Kim 2014, equation 2)
    c^ = max of c_i over the positions    (equation 3)

A head scores the maxima of all filters. Several layers with a mean over the positions are a time
delay neural network, which reads each frame with its delays and sums the evidence over time (Waibel
et al. 1989, section II); here with the activation and the windows of the configuration.

Convolutions are wide: texts have h - 1 zeros before and after, and each window with a word counts.

B batch   L length   T windows   D width   F filters
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.textcnn import TextCnnConfig
from models.layers.linear import FAN_IN, Dense
from models.layers.mlp import ACTIVATIONS
from models.layers.ops import PLAIN, Ops
from models.layers.word_encoder import WordEncoder


def gather_windows(x_BLD: jax.Array, window: int) -> jax.Array:
    """Return all windows of `window` positions, [B, T, window, D] with T = L + window - 1.

    Window t ends at position t. The row is padded with zeros at both ends.
    """
    around = [(0, 0), (window - 1, window - 1), *[(0, 0)] * (x_BLD.ndim - 2)]
    padded, T = jnp.pad(x_BLD, around), x_BLD.shape[1] + window - 1
    return jnp.stack([padded[:, i : i + T] for i in range(window)], axis=2)


class Convolution(nn.Module):
    """f(w . x + b) of each window, for filters of several windows.

    windows: the numbers of positions that filters read.
    filters: F, of each window.
    activation: f.
    """

    windows: tuple[int, ...]
    filters: int
    activation: str
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, is_read_BL: jax.Array
    ) -> list[tuple[jax.Array, jax.Array]]:
        """Return ([B, T, F], 0 where nothing is read; bool [B, T]) of each window.

        Args:
          x_BLD: the inputs, 0 where nothing is read.
          is_read_BL: bool.
        """
        maps = []
        for window in self.windows:
            convolve = Dense(
                self.filters,
                num_contracting_dims=2,
                kernel_init=FAN_IN,
                ops=self.ops,
                name=f"window_{window}",
            )
            c_BTF = ACTIVATIONS[self.activation](convolve(gather_windows(x_BLD, window)))
            is_read_BT = gather_windows(is_read_BL, window).any(axis=2)
            zero = jnp.zeros((), c_BTF.dtype)
            maps.append((jnp.where(is_read_BT[..., None], c_BTF, zero), is_read_BT))
        return maps


def center(x_BTF: jax.Array, length: int) -> jax.Array:
    """Return the results of the windows around each of `length` positions."""
    first = (x_BTF.shape[1] - length) // 2
    return x_BTF[:, first : first + length]


def pool_positions(x_BTF: jax.Array, is_read_BT: jax.Array, pooling: str) -> jax.Array:
    """Return the maximum or the mean over the positions that are read, [B, F]; 0 without any."""
    is_read_BT1 = is_read_BT[..., None]
    if pooling == "mean":
        num_B1 = jnp.maximum(is_read_BT1.sum(axis=1), 1).astype(jnp.float32)
        total_BF = jnp.where(is_read_BT1, x_BTF, 0).astype(jnp.float32).sum(axis=1)
        return (total_BF / num_B1).astype(x_BTF.dtype)
    lowest = jnp.asarray(jnp.finfo(x_BTF.dtype).min, x_BTF.dtype)
    largest_BF = jnp.where(is_read_BT1, x_BTF, lowest).max(axis=1)
    return jnp.where(is_read_BT1.any(axis=1), largest_BF, jnp.zeros((), x_BTF.dtype))


class TextCnn(WordEncoder):
    """Layers of convolutions, pooled over the positions."""

    config: TextCnnConfig

    def setup(self) -> None:
        """Make the embeddings and the layers."""
        super().setup()
        c = self.config
        convolution = partial(Convolution, c.windows, c.filters, c.activation, self.ops)
        self.layer = [convolution() for _ in range(c.depth)]

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last layer around each position [B, L, F], and the pooled row [B, F]."""
        c, L = self.config, token_ids.shape[1]
        x_BLD, is_read_BL = self.embed_words(token_ids, attention_mask, train)
        maps = [(x_BLD, is_read_BL)]
        for number, layer in enumerate(self.layer):
            if number:  # Maps of other windows are longer or shorter: those around the words.
                x_BLD = jnp.concatenate([center(x_BTF, L) for x_BTF, _ in maps], axis=-1)
                x_BLD = jnp.where(is_read_BL[..., None], x_BLD, jnp.zeros((), x_BLD.dtype))
            maps = layer(x_BLD, is_read_BL)
        pooled_BF = [pool_positions(x_BTF, is_read, c.pooling) for x_BTF, is_read in maps]
        states_BLF = jnp.concatenate([center(x_BTF, L) for x_BTF, _ in maps], axis=-1)
        return states_BLF, jnp.concatenate(pooled_BF, axis=-1)
