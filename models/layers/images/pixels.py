"""Pixels as a model reads them.

B batch   H W height and width in pixels   C channels
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def normalize_pixels(
    pixels_BHWC: jax.Array, config: Any, dtype: jnp.dtype, padding: int = 0
) -> jax.Array:
    """Return (x / 255 - mean) / std of each channel, [B, H, W, C], computed in float32.

    Args:
      pixels_BHWC: uint8.
      config: an `ImageConfig`.
      dtype: of the result.
      padding: pixels of value 0 that are added on each side.

    Raises:
      ValueError: the images do not have the configuration's size or channels.
    """
    size, channels = config.image_size, config.channels
    if pixels_BHWC.shape[1:] != (size, size, channels):
        raise ValueError(
            f"images of {list(pixels_BHWC.shape[1:])} height, width and channels; the model reads "
            f"{[size, size, channels]} (model.image_size, model.pixels)"
        )
    around = (padding, padding)
    pixels_BHWC = jnp.pad(pixels_BHWC, ((0, 0), around, around, (0, 0)))
    statistics = config.pixels.mean, config.pixels.std
    mean_C, std_C = (np.asarray(values, np.float32) for values in statistics)
    return ((pixels_BHWC.astype(jnp.float32) / 255 - mean_C) / std_C).astype(dtype)
