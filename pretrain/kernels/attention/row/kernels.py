"""The bodies of the whole-row kernel, forward and backward.

A tile of queries meets all the keys that it may read at once, so the softmax is the plain one; the
backward pass computes it again. Positions are in the lanes: scores are [keys, T], and a sum over
keys adds rows.

B batch   L length of queries   M length of keys   H heads   K head width   T queries of a tile
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from pretrain.kernels.attention.row.blocks import (
    Head,
    Inputs,
    clear_before_first_row,
    compare_ids,
    contract_first,
    contract_last,
    list_heads,
    repeat_keys,
)
from pretrain.kernels.attention.row.distances import (
    differentiate_distances,
    score_distances,
    sum_text_gradient,
)
from pretrain.kernels.attention.row.dropped_weights import make_keep_tile
from pretrain.kernels.attention.row.tiles import (
    Settings,
    Square,
    Tile,
    hides_padded_keys,
    list_tiles,
)
from pretrain.kernels.pair_scopes import name_rare_branch

LEAST = float(np.finfo(np.float32).min)  # the score of a pair that a mask hides


def find_visible(inputs: Inputs, tile: Tile | Square, settings: Settings) -> jax.Array | None:
    """Return which pairs of a tile or square the mask shows, bool [keys, T]; None for all."""
    rules = []
    if inputs.key_ranks is not None:
        rules.append(compare_ranks(inputs, tile, settings))
        others = inputs.lengths_B, inputs.key_ids, inputs.visible
        if all(x is None for x in others) and not hides_padded_keys(inputs.k.shape[2], settings):
            return rules[0]
    key = jax.lax.broadcasted_iota(jnp.int32, tile.shape, 0) + tile.keys.start
    first_query = tile.queries.start + settings.offset
    query = jax.lax.broadcasted_iota(jnp.int32, tile.shape, 1) + first_query
    num_before, num_after = settings.reach
    if num_before is not None:
        rules.append(query - key <= num_before)
    if num_after is not None:
        rules.append(key - query <= num_after)
    if hides_padded_keys(inputs.k.shape[2], settings):
        rules.append(key < settings.lengths[1])
    if inputs.lengths_B is not None:
        rules.append(key < inputs.lengths_B[pl.program_id(1)])
    if inputs.key_ids is not None:
        rules.append(compare_ids(inputs.query_ids, inputs.key_ids, tile))
    if inputs.visible is not None:
        rules.append(inputs.visible[0, tile.keys, tile.queries].astype(jnp.int32) != 0)
    return reduce(jnp.logical_and, rules) if rules else None


def compare_ranks(inputs: Inputs, tile: Tile | Square, settings: Settings) -> jax.Array:
    """Return which pairs of a tile or square the ranks show, bool [keys, T]."""
    is_before = repeat_keys(inputs.key_ranks, tile) < inputs.query_ranks[0, :, tile.queries]
    if settings.offset >= (settings.lengths[1] or inputs.k.shape[2]):
        return is_before  # the queries are after all keys
    query_T = jax.lax.broadcasted_iota(jnp.int32, (1, tile.shape[1]), 1)
    own_T = query_T + (tile.queries.start + settings.offset - tile.keys.start)
    return is_before | (jax.lax.broadcasted_iota(jnp.int32, tile.shape, 0) == own_T)


class Weights(NamedTuple):
    """The softmax of a tile.

    Attributes:
      powers: exp(score - largest score of the query), float32 [keys, T].
      total_T: what the powers are divided by, [1, T].
      is_empty_T: whether a mask hides every key from a query, [1, T].
      some_empty: whether it does so for any query of the tile, a scalar.
    """

    powers: jax.Array
    total_T: jax.Array
    is_empty_T: jax.Array
    some_empty: jax.Array


def compute_scores(
    inputs: Inputs, head: Head, tile: Tile | Square, visible: jax.Array | None, settings: Settings
) -> jax.Array:
    """Return the scores of a tile or square, float32 [keys, T], `LEAST` where a mask hides them."""
    q, k = inputs.q[0, head.rows, tile.queries], inputs.k[0, head.rows, tile.keys]
    scores = contract_first(k, q)
    scores *= settings.scale
    if inputs.bias is not None:
        scores += inputs.bias[head.index, tile.keys, tile.queries].astype(jnp.float32)
    if inputs.distances is not None:
        scores += score_distances(inputs, head, tile, settings)
    return scores if visible is None else jnp.where(visible, scores, LEAST)


def compute_weights(
    inputs: Inputs, head: Head, tile: Tile, visible: jax.Array | None, settings: Settings
) -> Weights:
    """Return the softmax of a tile before the division.

    A query without a key has the weight 1 / M on each, as in `attend`.
    """
    scores = compute_scores(inputs, head, tile, visible, settings)
    largest_T = scores.max(0, keepdims=True)
    powers = jnp.exp(scores - largest_T)
    is_empty_T = largest_T == LEAST
    M = inputs.k.shape[2]
    total_T = jnp.where(is_empty_T, float(M), powers.sum(0, keepdims=True))
    return Weights(powers, total_T, is_empty_T, jnp.min(largest_T) == LEAST)


def make_keep(
    inputs: Inputs, head: Head, tile: Tile | Square, settings: Settings
) -> jax.Array | None:
    """Return which weights of a tile or square dropout leaves, bool [keys, T]; None for all."""
    if not settings.rate:
        return None
    return make_keep_tile(
        (inputs.seeds[0], inputs.seeds[1]),
        settings.rate,
        head.first_query + tile.queries.start,
        tile.keys.start,
        tile.shape,
    )


def has_rows_of_padding(inputs: Inputs) -> bool:
    """Return whether the arrays of a mask may hide every key from a query."""
    arrays = inputs.lengths_B, inputs.key_ids, inputs.key_ranks, inputs.visible
    return any(array is not None for array in arrays)


def weigh_others(
    inputs: Inputs, head: Head, tile: Tile, keys: slice, weights: Weights, settings: Settings
) -> jax.Array:
    """Return the weights of keys outside of the tile, float32 [keys, T], for empty queries."""
    M, part = inputs.k.shape[2], tile._replace(keys=keys)
    keep = make_keep(inputs, head, part, settings)
    has_weight = jnp.broadcast_to(weights.is_empty_T, part.shape)
    has_weight = has_weight if keep is None else has_weight & keep
    return jnp.where(has_weight, 1 / (M * (1 - settings.rate)), 0.0)


def attend_forward(inputs: Inputs, out_ref: Any, *, settings: Settings) -> None:
    """Write the output [1, heads K, L] of the heads of a program."""
    heads = list_heads(inputs, settings)
    for tile in list_tiles(inputs.q.shape[2], inputs.k.shape[2], settings):
        visible = find_visible(inputs, tile, settings)
        for head in heads:
            weights = compute_weights(inputs, head, tile, visible, settings)
            keep = make_keep(inputs, head, tile, settings)
            powers = weights.powers if keep is None else jnp.where(keep, weights.powers, 0.0)
            v = inputs.v[0, head.rows, tile.keys]
            out = jnp.dot(v, powers.astype(v.dtype), preferred_element_type=jnp.float32)
            out *= 1 / (weights.total_T * (1 - settings.rate))
            out_ref[0, head.rows, tile.queries] = out.astype(out_ref.dtype)
            if tile.others and has_rows_of_padding(inputs):
                _add_others(inputs, out_ref, head, tile, weights, settings)


def _add_others(
    inputs: Inputs, out_ref: Any, head: Head, tile: Tile, weights: Weights, settings: Settings
) -> None:
    """Add the values of the keys outside of the tile to the outputs of empty queries."""
    with name_rare_branch():

        @pl.when(weights.some_empty)
        def _() -> None:
            out = out_ref[0, head.rows, tile.queries].astype(jnp.float32)
            for keys in tile.others:
                v = inputs.v[0, head.rows, keys]
                others = weigh_others(inputs, head, tile, keys, weights, settings)
                out += jnp.dot(v, others.astype(v.dtype), preferred_element_type=jnp.float32)
            out_ref[0, head.rows, tile.queries] = out.astype(out_ref.dtype)


def attend_backward(
    inputs: Inputs,
    do_ref: Any,
    gradients: Inputs,
    dk_sum: Any,
    dv_sum: Any,
    *,
    settings: Settings,
) -> None:
    """Write the gradients of the heads of a program.

    Those of the bias and of the distances are summed over the rows.

    dk_sum, dv_sum: float32 [heads K, M], memory of the program.
    """
    heads = list_heads(inputs, settings)
    dk_sum[...], dv_sum[...] = jnp.zeros_like(dk_sum), jnp.zeros_like(dv_sum)
    for total in (gradients.bias, gradients.distances):
        if total is not None:
            clear_before_first_row(total)
    for tile in list_tiles(inputs.q.shape[2], inputs.k.shape[2], settings):
        visible = find_visible(inputs, tile, settings)
        for head in heads:
            weights = compute_weights(inputs, head, tile, visible, settings)
            dropped, d_scores = _differentiate_weights(
                inputs, do_ref, head, tile, weights, visible, settings
            )
            if gradients.bias is not None:
                gradients.bias[head.index, tile.keys, tile.queries] += d_scores
            if gradients.distances is not None:
                distance_q = inputs.distance_q[0, head.rows, tile.queries]
            if gradients.text_scores is not None:
                d_text_T = sum_text_gradient(inputs, tile, d_scores)
                gradients.text_scores[0, head.index, :, tile.queries] = d_text_T.astype(
                    gradients.text_scores.dtype
                )
            if gradients.distances is not None:
                dq = differentiate_distances(
                    inputs, gradients, head, tile, distance_q, d_scores, settings
                )
                gradients.distance_q[0, head.rows, tile.queries] = dq.astype(
                    gradients.distance_q.dtype
                )
            q, k = inputs.q[0, head.rows, tile.queries], inputs.k[0, head.rows, tile.keys]
            do = do_ref[0, head.rows, tile.queries]
            d_scores = d_scores.astype(q.dtype)
            dv_sum[head.rows, tile.keys] += contract_last(do, dropped.astype(do.dtype))
            dk_sum[head.rows, tile.keys] += contract_last(q, d_scores) * settings.scale
            dq = jnp.dot(k, d_scores, preferred_element_type=jnp.float32) * settings.scale
            gradients.q[0, head.rows, tile.queries] = dq.astype(gradients.q.dtype)
            if tile.others and has_rows_of_padding(inputs):
                _add_other_gradients(inputs, do, dv_sum, head, tile, weights, settings)
    dk, dv = dk_sum[...].astype(gradients.k.dtype), dv_sum[...].astype(gradients.v.dtype)
    gradients.k[0], gradients.v[0] = dk, dv


def _differentiate_weights(
    inputs: Inputs,
    do_ref: Any,
    head: Head,
    tile: Tile,
    weights: Weights,
    visible: jax.Array | None,
    settings: Settings,
) -> tuple[jax.Array, jax.Array]:
    """Return the dropped softmax, and the gradient of the scores, float32 [keys, T]."""
    v, do = inputs.v[0, head.rows, tile.keys], do_ref[0, head.rows, tile.queries]
    softmax = weights.powers * (1 / weights.total_T)
    d_softmax = contract_first(v, do)
    dropped, keep = softmax, make_keep(inputs, head, tile, settings)
    if keep is not None:
        factor = jnp.where(keep, 1 / (1 - settings.rate), 0.0)
        dropped, d_softmax = softmax * factor, d_softmax * factor
    d_scores = softmax * (d_softmax - (softmax * d_softmax).sum(0, keepdims=True))
    return dropped, d_scores if visible is None else jnp.where(visible, d_scores, 0.0)


def _add_other_gradients(
    inputs: Inputs,
    do: jax.Array,
    dv_sum: Any,
    head: Head,
    tile: Tile,
    weights: Weights,
    settings: Settings,
) -> None:
    """Add to the gradient of the values outside of the tile what empty queries give them."""
    with name_rare_branch():

        @pl.when(weights.some_empty)
        def _() -> None:
            for keys in tile.others:
                others = weigh_others(inputs, head, tile, keys, weights, settings)
                dv_sum[head.rows, keys] += contract_last(do, others.astype(do.dtype))
