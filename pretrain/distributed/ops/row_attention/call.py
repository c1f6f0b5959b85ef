"""The call of the whole-row kernel on one device, and its gradient.

B batch   L length of queries   M length of keys   H heads   K head width
W the width of a head with zeros behind it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.distributed.ops.row_attention.blocks import Inputs
from pretrain.distributed.ops.row_attention.inputs import find_pair_terms, make_inputs, pad_heads
from pretrain.distributed.ops.row_attention.kernels import attend_backward, attend_forward
from pretrain.distributed.ops.row_attention.tiles import (
    SMALL_VMEM,
    Settings,
    choose_blocks,
    list_tiles,
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
      q_BLHK: the queries.
      k_BMHK: the keys.
      v_BMHK: the values.
      mask: rules without a decoding step, a pattern or chunks; or bool [B, 1, L, M].
      bias: [1, H, L, M], or of distances.
      scale: of the scores; K ** -0.5 by default.
      drop: dropout of `hash_dropout.drop_by_hash`, with a draw for each weight.
      first: the numbers of the first row and of the first head in the whole batch, by which the
        dropped weights do not depend on the mesh.
      num_heads: heads of the whole model; H by default.
      vmem_bytes: memory of a program.
      changes: of the chosen `Settings`.
    """
    B, L, H, K = q_BLHK.shape
    scale = K**-0.5 if scale is None else scale
    q_BLHW, k_BMHW, v_BMHW, bias = pad_heads(q_BLHK, k_BMHK, v_BMHK, bias)
    mask = Mask() if mask is None else mask
    settings = _choose_settings(q_BLHW, k_BMHW, mask, bias, vmem_bytes)._replace(
        num_heads=num_heads or H, scale=scale, rate=drop.rate if drop else 0.0, **changes
    )
    words = jnp.zeros(2, jnp.uint32) if drop is None else drop.key
    numbers = [jnp.asarray(number, jnp.int32) for number in first]
    seeds = jnp.concatenate([jax.lax.bitcast_convert_type(words, jnp.int32), jnp.stack(numbers)])
    inputs = make_inputs(seeds, q_BLHW, k_BMHW, v_BMHW, mask, bias, settings)
    out: jax.Array = attend_blocks(inputs, settings)  # pyright: ignore[reportAssignmentType]
    return out.swapaxes(1, 2).reshape(q_BLHW.shape)[..., :K]


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
    rules = mask if isinstance(mask, Mask) else Mask()
    heads_per_program, tile = choose_blocks(
        H,
        width,
        L,
        M,
        q_BLHW.dtype.itemsize,
        find_pair_terms(mask, bias),
        rules.local_window_size,
        vmem_bytes,
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
        offset=rules.offset,
        num_ordered=bias.num_ordered if has_distances else 0,
        bias_scale=bias.scale if has_distances else 1.0,
        vmem_bytes=vmem_bytes,
    )


# The block of each input.
BLOCKS = {
    "seeds": "scalars",
    "lengths_B": "scalars",
    "q": "queries",
    "k": "keys",
    "v": "keys",
    "query_ids": "query ids",
    "key_ids": "key ids",
    "visible": "pairs",
    "bias": "bias",
    "distance_q": "queries",
    "distances": "distances",
    "first_rows": "query ids",
    "text_scores": "text scores",
    "query_texts": "query ids",
    "key_texts": "key ids",
}
# The inputs that have gradients.
GRADIENTS = "q", "k", "v", "bias", "distance_q", "distances", "text_scores"
SUMMED_OVER_ROWS = "bias", "distances"


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_blocks(inputs: Inputs, settings: Settings) -> jax.Array:
    """Return the output [B, H K, L] in the dtype of the values."""
    return _attend_fwd(inputs, settings)[0]


def _attend_fwd(inputs: Inputs, settings: Settings) -> tuple[jax.Array, Inputs]:
    out = jax.ShapeDtypeStruct(inputs.q.shape, inputs.v.dtype)
    (out,) = _call(attend_forward, inputs, (), [(out, "queries")], settings)
    return out, inputs


def _attend_bwd(settings: Settings, inputs: Inputs, do: jax.Array) -> tuple[Inputs]:
    names = [name for name in GRADIENTS if getattr(inputs, name) is not None]
    results = []
    for name in names:
        x = getattr(inputs, name)
        dtype = jnp.float32 if name in SUMMED_OVER_ROWS else x.dtype
        results.append((jax.ShapeDtypeStruct(x.shape, dtype), BLOCKS[name]))
    found = _call(attend_backward, inputs, (do,), results, settings)
    gradients = {name: dx.astype(getattr(inputs, name).dtype) for name, dx in zip(names, found)}
    return (Inputs(None)._replace(**gradients),)


attend_blocks.defvjp(_attend_fwd, _attend_bwd)


def _call(
    body: Callable[..., None],
    inputs: Inputs,
    gradients: tuple[jax.Array, ...],
    results: list[tuple[jax.ShapeDtypeStruct, str]],
    settings: Settings,
) -> tuple[jax.Array, ...]:
    """Run a body for the groups of heads and the rows of the batch.

    gradients: that of the output in the backward pass, of which the body gets two sums as well.
    results: (shape and dtype, name of the block) of each.
    """
    B, width, L = inputs.q.shape
    M, heads = inputs.k.shape[2], settings.heads_per_program
    num_heads, rows = width // settings.head_width, heads * settings.head_width
    blocks = _make_blocks(inputs, heads, rows)
    present = [
        (x, blocks[BLOCKS[name]]) for name, x in zip(Inputs._fields, inputs) if x is not None
    ]
    operands = [*present, *((x, blocks["queries"]) for x in gradients)]
    sums_rows = any(name in SUMMED_OVER_ROWS for _, name in results)

    def run_body(*references: Any) -> None:
        remaining = iter(references)
        blocks = Inputs(*(None if x is None else next(remaining) for x in inputs))
        if not gradients:
            body(blocks, *remaining, settings=settings)
            return
        do_ref = next(remaining)
        names = [name for name in GRADIENTS if getattr(inputs, name) is not None]
        written = Inputs(None)._replace(**{name: next(remaining) for name in names})
        body(blocks, do_ref, written, *remaining, settings=settings)

    return pl.pallas_call(
        run_body,
        grid=(num_heads // heads, B),
        in_specs=[spec for _, spec in operands],
        out_specs=[blocks[name] for _, name in results],
        out_shape=[shape for shape, _ in results],
        scratch_shapes=[pltpu.VMEM((rows, M), jnp.float32)] * (2 * len(gradients)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary" if sums_rows else "parallel"),
            vmem_limit_bytes=None if settings.vmem_bytes == SMALL_VMEM else settings.vmem_bytes,
        ),
        cost_estimate=_estimate_cost(
            [*(x for x, _ in operands), *(shape for shape, _ in results)],
            B * num_heads * sum(math.prod(tile.shape) for tile in list_tiles(L, M, settings)),
            settings.head_width * (5 if gradients else 2),
        ),
        interpret=settings.interpret,
        name=body.__name__,
    )(*(x for x, _ in operands))


def _make_blocks(inputs: Inputs, heads: int, rows: int) -> dict[str, pl.BlockSpec]:
    """Return the blocks of the arrays of a call, by name.

    heads: of a program.
    rows: of its queries.
    """
    L, M = inputs.q.shape[2], inputs.k.shape[2]
    R = 0 if inputs.distances is None else inputs.distances.shape[1]
    return {
        "scalars": pl.BlockSpec(memory_space=pltpu.MemorySpace.SMEM),
        "queries": pl.BlockSpec((1, rows, L), lambda h, b: (b, h, 0)),
        "keys": pl.BlockSpec((1, rows, M), lambda h, b: (b, h, 0)),
        "query ids": pl.BlockSpec((1, 1, L), lambda h, b: (b, 0, 0)),
        "key ids": pl.BlockSpec((1, 1, M), lambda h, b: (b, 0, 0)),
        "pairs": pl.BlockSpec((1, M, L), lambda h, b: (b, 0, 0)),
        "bias": pl.BlockSpec((heads, M, L), lambda h, b: (h, 0, 0)),
        "distances": pl.BlockSpec((rows, R), lambda h, b: (h, 0)),
        "text scores": pl.BlockSpec((1, heads, 1, L), lambda h, b: (b, h, 0, 0)),
    }


def _estimate_cost(arrays: list[Any], num_pairs: int, products: int) -> pl.CostEstimate:
    """Return what XLA's scheduler reads; products: multiply-adds of a pair."""
    return pl.CostEstimate(
        flops=2 * num_pairs * products,
        transcendentals=num_pairs,
        bytes_accessed=sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays),
    )
