"""The call of the whole-row kernel on one device, and its gradient.

B batch   L length of queries   M length of keys   H heads   K head width
W the width of a head with zeros after it
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.row.blocks import Inputs
from pretrain.kernels.attention.row.inputs import (
    count_distances,
    find_pair_terms,
    find_span,
    make_inputs,
    pad_heads,
)
from pretrain.kernels.attention.row.kernels import attend_backward, attend_forward
from pretrain.kernels.attention.row.pallas_call import call_backward, call_forward
from pretrain.kernels.attention.row.squares import attend_forward_in_squares
from pretrain.kernels.attention.row.squares_backward import (
    Sums,
    attend_backward_in_squares,
)
from pretrain.kernels.attention.row.tiles import (
    MAX_LENGTH,
    SMALL_VMEM,
    SQUARES,
    Settings,
    choose_blocks,
    choose_square,
)


def attend_local_rows(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | DistanceBias | None = None,
    scale: float | None = None,
    drop: KeyedDropout | None = None,
    first: tuple[int | jax.Array, int | jax.Array] = (0, 0),
    num_heads: int | None = None,
    vmem_bytes: int = SMALL_VMEM,
    **changes: Any,
) -> jax.Array:
    """Compute `attend` of the rows and heads of one device.

    Args:
      k_BMHK: the keys.
      mask: rules without a decoding step, a pattern or chunks; or bool [B, 1, L, M].
      bias: [1, H, L, M], or of distances.
      scale: of the scores; K ** -0.5 by default.
      first: the numbers of the first row and of the first head in the whole batch, by which the
        dropped weights do not depend on the mesh.
      num_heads: heads of the whole model; H by default.
    """
    B, L, H, K = q_BLHK.shape
    if _has_two_streams(bias) and (k_BMHK.shape[1] > MAX_LENGTH or "square" in changes):
        options = dict(scale=scale, drop=drop, first=first, num_heads=num_heads)
        options |= dict(vmem_bytes=vmem_bytes, **changes)
        return _attend_streams(q_BLHK, k_BMHK, v_BMHK, mask, bias, options)
    scale = K**-0.5 if scale is None else scale
    q_BLHW, k_BMHW, v_BMHW, bias = pad_heads(q_BLHK, k_BMHK, v_BMHK, bias)
    mask = Mask() if mask is None else mask
    settings = _choose_settings(q_BLHW, k_BMHW, mask, bias, vmem_bytes)._replace(
        num_heads=num_heads or H, scale=scale, rate=drop.rate if drop else 0.0, **changes
    )
    words = jnp.zeros(2, jnp.uint32) if drop is None else drop.key
    numbers = [jnp.asarray(number, jnp.int32) for number in first]
    seeds = jnp.concatenate([jax.lax.bitcast_convert_type(words, jnp.int32), jnp.stack(numbers)])
    if settings.square:
        settings = settings._replace(heads_per_program=1, lengths=(L, k_BMHK.shape[1]))
    inputs = make_inputs(seeds, q_BLHW, k_BMHW, v_BMHW, mask, bias, settings)
    attend_inputs: Any = attend_squares if settings.square else attend_blocks
    out = attend_inputs(inputs, settings)[..., :L]
    return out.swapaxes(1, 2).reshape(q_BLHW.shape)[..., :K]


def _has_two_streams(bias: jax.Array | DistanceBias | None) -> TypeGuard[DistanceBias]:
    """Return whether queries in the order of the keys come before others."""
    if not isinstance(bias, DistanceBias) or bias.position_BP is None:
        return False
    return bias.num_ordered > 0


def _attend_streams(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    mask: Mask | jax.Array | None,
    bias: DistanceBias,
    options: dict[str, Any],
) -> jax.Array:
    """Compute `attend_local_rows` in squares, of queries in order and of the others."""
    assert mask is None or isinstance(mask, Mask), "squares take no mask of pairs"
    L, S, outputs = q_BLHK.shape[1], bias.num_ordered, []
    for start, stop, stream_bias in zip((0, S), (S, L), bias.split_queries()):
        if start < stop:
            out_BLHK = attend_local_rows(
                q_BLHK[:, start:stop],
                k_BMHK,
                v_BMHK,
                mask=mask and mask.take_queries(start, stop),
                bias=stream_bias,
                num_queries=L,
                first_query=start,
                **options,
            )
            outputs.append(out_BLHK)
    return jnp.concatenate(outputs, axis=1)


def _choose_settings(
    q_BLHW: jax.Array,
    k_BMHW: jax.Array,
    mask: Mask | jax.Array,
    bias: jax.Array | DistanceBias | None,
    vmem_bytes: int,
) -> Settings:
    """Return the settings of a call without dropout, with a scale of 1."""
    _, L, H, width = q_BLHW.shape
    M = k_BMHW.shape[1]
    rules, itemsize = mask if isinstance(mask, Mask) else Mask(), q_BLHW.dtype.itemsize
    heads_per_program, square = 1, 0
    if max(L, M) > MAX_LENGTH:
        found = choose_square(
            *(width, L, M, itemsize, count_distances(bias), vmem_bytes),
            hides_places=rules.local_window_size != (None, None),
            span=find_span(bias),
        )
        tile, square = found or SQUARES[-1]
    else:
        terms, reach = find_pair_terms(mask, bias), rules.local_window_size
        heads_per_program, tile = choose_blocks(
            *(H, width, L, M, itemsize, terms, reach, vmem_bytes)
        )
    has_distances = isinstance(bias, DistanceBias)
    return Settings(
        num_heads=H,
        head_width=width,
        scale=1.0,
        rate=0.0,
        reach=rules.local_window_size,
        heads_per_program=heads_per_program,
        tile=tile,
        square=square,
        offset=rules.offset,
        num_ordered=bias.num_ordered if has_distances else 0,
        bias_scale=bias.scale if has_distances else 1.0,
        vmem_bytes=vmem_bytes,
    )


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_blocks(inputs: Inputs, settings: Settings) -> jax.Array:
    """Return the output [B, H K, L] in the dtype of the values."""
    return _attend_fwd(inputs, settings)[0]


def _attend_fwd(inputs: Inputs, settings: Settings) -> tuple[jax.Array, Inputs]:
    out = jax.ShapeDtypeStruct(inputs.q.shape, inputs.v.dtype)
    (out,) = call_forward(attend_forward, inputs, [(out, "queries")], settings)
    return out, inputs


def _attend_bwd(settings: Settings, inputs: Inputs, do: jax.Array) -> tuple[Inputs]:
    rows, M = settings.heads_per_program * settings.head_width, inputs.k.shape[2]
    return call_backward(
        attend_backward, inputs, [(do, "queries")], settings, [(rows, M), (rows, M)]
    )


attend_blocks.defvjp(_attend_fwd, _attend_bwd)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_squares(inputs: Inputs, settings: Settings) -> jax.Array:
    """Return the output [B, H K, L] of rows in squares, in the dtype of the values."""
    return _attend_squares_fwd(inputs, settings)[0]


def _attend_squares_fwd(inputs: Inputs, settings: Settings) -> tuple[jax.Array, Any]:
    B, width, L = inputs.q.shape
    K, T = settings.head_width, settings.tile
    out, log_total = call_forward(
        attend_forward_in_squares,
        inputs,
        [
            (jax.ShapeDtypeStruct(inputs.q.shape, inputs.v.dtype), "queries"),
            (jax.ShapeDtypeStruct((B, width // K, 1, L), jnp.float32), "text scores"),
        ],
        settings,
        [(1, T), (1, T), (K, T)],
    )
    return out, (inputs, out, log_total)


def _attend_squares_bwd(settings: Settings, residuals: Any, do: jax.Array) -> tuple[Inputs]:
    inputs, out, log_total = residuals
    K, T, M = settings.head_width, settings.tile, inputs.k.shape[2]
    delta = (out.astype(jnp.float32) * do.astype(jnp.float32)).reshape(*log_total.shape[:2], K, -1)
    delta = delta.sum(2, keepdims=True)
    others = [(do, "queries"), (log_total, "text scores"), (delta, "text scores")]
    scratch = Sums(k=(K, M), v=(K, M), q=(K, T), distance_q=(K, T), text_T=(1, T))
    return call_backward(attend_backward_in_squares, inputs, others, settings, scratch)


attend_squares.defvjp(_attend_squares_fwd, _attend_squares_bwd)
