"""The arrays of a call of the whole-row kernel, in its layout.

B batch   L length of queries   M length of keys   H heads   K head width   R distances
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.row.blocks import Inputs
from pretrain.kernels.attention.row.distances import (
    count_distances_of_squares,
    count_distances_of_tiles,
    find_first_rows,
    pad_distances,
)
from pretrain.kernels.attention.row.pallas_call import BLOCKS, OF_KEYS, OF_QUERIES
from pretrain.kernels.attention.row.spread_queries import (
    count_distances_of_windows,
    find_windows,
)
from pretrain.kernels.attention.row.squares import list_squares
from pretrain.kernels.attention.row.tiles import SPAN, SUBLANES, PairTerms, Settings


def find_pair_terms(
    mask: Mask | jax.Array | None, bias: jax.Array | DistanceBias | None
) -> PairTerms:
    """Return what a call needs memory for, in addition to queries, keys and values."""
    has_distances = isinstance(bias, DistanceBias)
    has_mask = mask is not None and not isinstance(mask, Mask)
    return PairTerms(bias is not None and not has_distances, has_distances, has_mask)


def count_distances(bias: jax.Array | DistanceBias | None) -> int:
    """Return the number of distances of a bias, R; 0 without them."""
    return len(bias.r_RHK) if isinstance(bias, DistanceBias) else 0


def find_span(bias: jax.Array | DistanceBias | None) -> int:
    """Return the places of a window of distances of queries in no order; 0 if all are in order."""
    has_others = isinstance(bias, DistanceBias) and bias.position_BP is not None
    return SPAN if has_others else 0


def list_streams(L: int, bias: jax.Array | DistanceBias | None) -> list[tuple[int, int]]:
    """Return (queries, `find_span` of them) of each call that computes a row in squares."""
    if not isinstance(bias, DistanceBias) or not find_span(bias):
        return [(L, 0)]
    S = bias.num_ordered
    return [(count, span) for count, span in ((S, 0), (L - S, SPAN)) if count]


def make_inputs(
    seeds: jax.Array,
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    mask: Mask | jax.Array,
    bias: jax.Array | DistanceBias | None,
    settings: Settings,
) -> Inputs:
    """Return the arrays in the order of the kernel.

    Padding is passed as lengths, and next to segments as a segment of its own.
    """
    ids, lengths_B, visible_BML, ranks = None, None, None, None
    if not isinstance(mask, Mask):
        visible_BML = mask[:, 0].swapaxes(1, 2).astype(jnp.int8)
    elif mask.segment_ids is not None:
        ids = mask.combine_segment_ids(*q_BLHK.shape[:2])
    elif mask.attention_mask_BM is not None:
        lengths_B = mask.attention_mask_BM.sum(-1, dtype=jnp.int32)
    if isinstance(mask, Mask) and mask.ranks is not None:
        ranks = mask.ranks
    bias_1HLM = None if isinstance(bias, DistanceBias) else bias
    inputs = Inputs(
        seeds=seeds,
        lengths_B=lengths_B,
        q=_move_positions_last(q_BLHK),
        k=_move_positions_last(k_BMHK),
        v=_move_positions_last(v_BMHK),
        query_ids=ids and ids[0][:, None],
        key_ids=ids and ids[1][:, None],
        query_ranks=ranks and ranks[0][:, None],
        key_ranks=ranks and ranks[1][:, None],
        visible=visible_BML,
        bias=None if bias_1HLM is None else bias_1HLM[0].swapaxes(1, 2),
    )
    if isinstance(bias, DistanceBias):
        inputs = _add_distances(inputs, bias, settings)
    return _add_squares(inputs, settings) if settings.square else inputs


def _add_distances(inputs: Inputs, bias: DistanceBias, settings: Settings) -> Inputs:
    """Return the inputs with the arrays of a bias of distances.

    The softmax of a query is the same with a constant in all of its scores, so the term of the
    query's own text is subtracted from both terms of the texts.
    """
    r_KR = bias.r_RHK.reshape(len(bias.r_RHK), -1).T
    windows = None
    if settings.square and bias.position_BP is not None:
        length = count_distances_of_windows(bias, settings)
        first_rows, windows = find_windows(bias, settings)
    elif settings.square:
        length = count_distances_of_squares(list_squares(*settings.lengths, settings), settings)
        first_rows = find_first_rows(bias, settings)
    else:
        length = count_distances_of_tiles(bias.num_keys, settings)
        first_rows = find_first_rows(bias, settings)
    inputs = inputs._replace(
        distance_q=_move_positions_last(bias.q_BLHK),
        distances=pad_distances(r_KR, length, settings),
        first_rows=first_rows,
        windows=windows,
    )
    if (texts := bias.texts) is None:
        return inputs
    return inputs._replace(
        text_scores=((texts.other_BHL - texts.same_BHL) * bias.scale)[:, :, None],
        query_texts=texts.query_ids_BL[:, None],
        key_texts=texts.key_ids_BN[:, None],
    )


def _add_squares(inputs: Inputs, settings: Settings) -> Inputs:
    """Return the inputs with zeros after the positions, up to whole squares, and the squares."""
    L, M = settings.lengths
    paddings = {"queries": -L % settings.tile, "keys": -M % settings.square}
    padded = {"squares": jnp.asarray(list_squares(L, M, settings))}
    for name, x in zip(inputs._fields, inputs):
        axis = "queries" if BLOCKS[name] in OF_QUERIES else "keys"
        if x is not None and BLOCKS[name] in (*OF_QUERIES, *OF_KEYS):
            # A query after the row has keys, as one without takes the time of a rare branch.
            fill = np.iinfo(np.int32).max if name == "query_ranks" else 0
            widths = [(0, 0)] * (x.ndim - 1) + [(0, paddings[axis])]
            padded[name] = jnp.pad(x, widths, constant_values=fill)
    return inputs._replace(**padded)


def _move_positions_last(x_BLHK: jax.Array) -> jax.Array:
    """Return x as [B, H K, L], the order that XLA gives the results of the projections anyway."""
    return x_BLHK.reshape(*x_BLHK.shape[:2], -1).swapaxes(1, 2)


def pad_heads(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    bias: jax.Array | DistanceBias | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | DistanceBias | None]:
    """Return the arrays with zeros after each head, up to a width that the kernel takes."""
    padding = -q_BLHK.shape[-1] % SUBLANES
    if not padding:
        return q_BLHK, k_BMHK, v_BMHK, bias

    def pad(x: jax.Array) -> jax.Array:
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padding)])

    if isinstance(bias, DistanceBias):
        bias = bias.replace(q_BLHK=pad(bias.q_BLHK), r_RHK=pad(bias.r_RHK))
    return pad(q_BLHK), pad(k_BMHK), pad(v_BMHK), bias
