"""Rotary positions: queries and keys turned by angles that grow with their position.

Su et al. 2021, section 3.4. The score of a query and a key then depends on their distance.

B batch   L length   H heads   K head width   I = K / 2
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.layers.masks import make_position_ids


class Rotation(NamedTuple):
    """The angles of each position, one for each pair of dimensions of a head.

    cos_BLI, sin_BLI: float32; B is 1 where all rows have the same positions.
    """

    cos_BLI: jax.Array
    sin_BLI: jax.Array


def find_positions(L: int, segment_ids: jax.Array | None = None) -> jax.Array:
    """Return the positions int32 [B, L], which start again with each text of a packed row.

    segment_ids: int32 [B, L], the packed text of each token; None: one text a row, and B is 1.
    """
    return jnp.arange(L)[None] if segment_ids is None else make_position_ids(segment_ids)


def check_length(L: int, length: int) -> None:
    """Raise ValueError for a row of more tokens than the longest that a model was made for."""
    if L > length:
        raise ValueError(
            f"a row of {L} tokens is longer than the {length} positions of the model "
            "(model.length). Rotary positions have no table: a larger model.length needs no new "
            "parameters, but train on such rows before you rely on them"
        )


def make_rotation(
    positions_BL: jax.Array, head_width: int, base: float, rates: str = "float32"
) -> Rotation:
    """Return the rotation by position / base^(2i/K) of pair i (section 3.4.2, equation 15).

    Args:
      positions_BL: int32.
      head_width: K.
      base: the slowest pair turns once in about 2 pi `base` positions; 10,000 in the paper.
      rates: the dtype to which base^(-2i/K) is rounded.

    Raises:
      ValueError: the head width is odd.
    """
    if head_width % 2:
        raise ValueError(
            f"heads of width {head_width}: rotary positions turn pairs of dimensions, so the width "
            "of a head must be even; change model.width or model.num_heads"
        )
    rate_I = base ** -(jnp.arange(0, head_width, 2, dtype=jnp.float32) / head_width)
    rate_I = rate_I.astype(rates).astype(jnp.float32)
    angle_BLI = positions_BL[..., None].astype(jnp.float32) * rate_I
    return Rotation(jnp.cos(angle_BLI), jnp.sin(angle_BLI))


def rotate(x_BLHK: jax.Array, rotation: Rotation) -> jax.Array:
    """Return queries or keys, turned in float32 and in the dtype of x.

    Dimension i and i + K/2 are a pair, as in Llama and ModernBERT. (In the paper 2i and 2i + 1 are:
    the same up to the order of a head's dimensions.)
    """
    cos_BL1I, sin_BL1I = rotation.cos_BLI[:, :, None], rotation.sin_BLI[:, :, None]
    x_BLHI, y_BLHI = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    turned_BLHK = jnp.concatenate(
        [x_BLHI * cos_BL1I - y_BLHI * sin_BL1I, y_BLHI * cos_BL1I + x_BLHI * sin_BL1I], axis=-1
    )
    return turned_BLHK.astype(x_BLHK.dtype)
