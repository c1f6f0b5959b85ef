"""The backward body of the whole-row kernel for a row that is computed in squares.

It takes the logarithm of each query's sum over all keys from the forward pass, and the product of
its output and the gradient of that (Dao et al. 2022, algorithm 4).

L length of queries   M length of keys   K head width   T queries of a square
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pretrain.kernels.attention.row.blocks import (
    Head,
    Inputs,
    contract_first,
    contract_last,
    list_heads,
)
from pretrain.kernels.attention.row.distances import (
    differentiate_distances,
    sum_text_gradient,
)
from pretrain.kernels.attention.row.kernels import (
    compute_scores,
    find_visible,
    make_keep,
)
from pretrain.kernels.attention.row.squares import (
    Place,
    find_square,
    move_square,
    weigh_empty,
)
from pretrain.kernels.attention.row.tiles import Settings, Square
from pretrain.kernels.pair_scopes import name_rare_branch


class Sums(NamedTuple):
    """The sums of gradients in the memory of a backward program, float32.

    Attributes:
      k: of the keys, [K, M].
      v: of the values, [K, M].
      q: of the queries of a square, [K, T].
      distance_q: of the queries of the distances, [K, T].
      text_T: of the texts' term, [1, T].
    """

    k: Any
    v: Any
    q: Any
    distance_q: Any
    text_T: Any


def attend_backward_in_squares(
    inputs: Inputs,
    do_ref: Any,
    log_total_ref: Any,
    delta_ref: Any,
    gradients: Inputs,
    *sums: Any,
    settings: Settings,
) -> None:
    """Write the gradients of a head; sum the distances' gradient over the rows.

    log_total_ref: of the forward pass.
    delta_ref: the product of each query's output and the gradient of it, [1, 1, 1, L].
    sums: as in `Sums`.
    """
    total = Sums(*sums)
    square, place = find_square(inputs, settings)
    (head,) = list_heads(inputs, settings)
    _clear_sums(gradients, total, place)
    visible = find_visible(inputs, square, settings)
    scores = compute_scores(inputs, head, square, visible, settings)
    log_total_T = log_total_ref[0, head.index, :, square.queries]
    softmax = jnp.exp(scores - log_total_T)
    v, do = inputs.v[0, head.rows, square.keys], do_ref[0, head.rows, square.queries]
    d_softmax = contract_first(v, do)
    dropped, keep = softmax, make_keep(inputs, head, square, settings)
    if keep is not None:
        factor = jnp.where(keep, 1 / (1 - settings.rate), 0.0)
        dropped, d_softmax = softmax * factor, d_softmax * factor
    d_scores = softmax * (d_softmax - delta_ref[0, head.index, :, square.queries])
    total.v[:, square.keys] += contract_last(do, dropped.astype(do.dtype))
    if gradients.text_scores is not None:
        total.text_T[...] += sum_text_gradient(inputs, square, d_scores)
    if gradients.distances is not None:
        distance_q = inputs.distance_q[0, head.rows, square.queries]
        total.distance_q[...] += differentiate_distances(
            inputs, gradients, head, square, distance_q, d_scores, settings
        )
    q, k = inputs.q[0, head.rows, square.queries], inputs.k[0, head.rows, square.keys]
    d_scores = d_scores.astype(q.dtype)
    total.k[:, square.keys] += contract_last(q, d_scores) * settings.scale
    total.q[...] += jnp.dot(k, d_scores, preferred_element_type=jnp.float32) * settings.scale
    if visible is not None:
        _add_means(inputs, do, total, head, square, place, log_total_T, settings)
    _write_sums(gradients, total, head, square, place)


def _clear_sums(gradients: Inputs, total: Sums, place: Place) -> None:
    """Write zeros to the sums that begin with this square."""

    @pl.when(place.is_first_of_queries)
    def _() -> None:
        for own in (total.q, total.distance_q, total.text_T):
            own[...] = jnp.zeros_like(own)

    @pl.when(place.is_first)
    def _() -> None:
        total.k[...], total.v[...] = jnp.zeros_like(total.k), jnp.zeros_like(total.v)

    if gradients.distances is not None:

        @pl.when(place.is_first & (pl.program_id(1) == 0))
        def _() -> None:
            gradients.distances[...] = jnp.zeros_like(gradients.distances)


def _add_means(
    inputs: Inputs,
    do: jax.Array,
    total: Sums,
    head: Head,
    square: Square,
    place: Place,
    log_total_T: jax.Array,
    settings: Settings,
) -> None:
    """Add to the gradient of all values what queries that may read nothing give them."""
    is_empty_T = log_total_T == jnp.inf
    with name_rare_branch():

        @pl.when(place.is_last_of_queries & (jnp.max(log_total_T) == jnp.inf))
        def _() -> None:
            def add_keys(number: Any, carry: Any) -> Any:
                part = move_square(square, number, settings)
                weights = weigh_empty(inputs, head, part, is_empty_T, settings)
                total.v[:, part.keys] += contract_last(do, weights.astype(do.dtype))
                return carry

            jax.lax.fori_loop(0, inputs.k.shape[2] // settings.square, add_keys, None)


def _write_sums(gradients: Inputs, total: Sums, head: Head, square: Square, place: Place) -> None:
    """Write the sums that end with this square."""

    @pl.when(place.is_last_of_queries)
    def _() -> None:
        for d_ref, own in (
            (gradients.q, total.q),
            (gradients.distance_q, total.distance_q),
        ):
            if d_ref is not None:
                d_ref[0, head.rows, square.queries] = own[...].astype(d_ref.dtype)
        if (d_ref := gradients.text_scores) is not None:
            d_ref[0, head.index, :, square.queries] = total.text_T[...].astype(d_ref.dtype)

    @pl.when(place.is_last)
    def _() -> None:
        gradients.k[0] = total.k[...].astype(gradients.k.dtype)
        gradients.v[0] = total.v[...].astype(gradients.v.dtype)
