"""The call of the whole-row kernel on one device, and its gradient.

B batch   L length of queries   M length of keys   H heads   K head width
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
from pretrain.distributed.ops.row_attention.kernels import (
    Inputs,
    attend_backward,
    attend_forward,
)
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
    mask: Mask | None = None,
    bias: jax.Array | None = None,
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
      mask: rules without a decoding step, a pattern, chunks or an offset.
      bias: [1, H, L, M].
      scale: of the scores; K ** -0.5 by default.
      drop: dropout of `hash_dropout.drop_by_hash`, with a draw for each weight.
      first: the numbers of the first row and of the first head in the whole batch, by which the
        dropped weights do not depend on the mesh.
      num_heads: heads of the whole model; H by default.
      vmem_bytes: memory of a program.
      changes: of the chosen `Settings`.
    """
    B, L, H, K = q_BLHK.shape
    M = k_BMHK.shape[1]
    mask = mask or Mask()
    reach = mask.local_window_size
    heads_per_program, tile = choose_blocks(
        H, K, L, M, q_BLHK.dtype.itemsize, bias is not None, reach, vmem_bytes
    )
    settings = Settings(
        num_heads=num_heads or H,
        head_width=K,
        scale=K**-0.5 if scale is None else scale,
        rate=drop.rate if drop else 0.0,
        reach=reach,
        heads_per_program=heads_per_program,
        tile=tile,
        vmem_bytes=vmem_bytes,
    )._replace(**changes)
    words = jnp.zeros(2, jnp.uint32) if drop is None else drop.key
    numbers = [jnp.asarray(number, jnp.int32) for number in first]
    seeds = jnp.concatenate([jax.lax.bitcast_convert_type(words, jnp.int32), jnp.stack(numbers)])
    inputs = _make_inputs(seeds, q_BLHK, k_BMHK, v_BMHK, mask, bias)
    out: jax.Array = attend_blocks(inputs, settings)  # pyright: ignore[reportAssignmentType]
    return out.swapaxes(1, 2).reshape(B, L, H, K)


def _make_inputs(
    seeds: jax.Array,
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    mask: Mask,
    bias: jax.Array | None,
) -> Inputs:
    """Return the arrays in the order of the kernel.

    Padding is passed as lengths, and next to segments as a segment of its own.
    """
    ids, lengths_B = None, None
    if mask.segment_ids is not None:
        ids = mask.combine_segment_ids(*q_BLHK.shape[:2])
    elif mask.attention_mask_BM is not None:
        lengths_B = mask.attention_mask_BM.sum(-1, dtype=jnp.int32)
    return Inputs(
        seeds=seeds,
        lengths_B=lengths_B,
        q=_move_positions_last(q_BLHK),
        k=_move_positions_last(k_BMHK),
        v=_move_positions_last(v_BMHK),
        query_ids=ids and ids[0][:, None],
        key_ids=ids and ids[1][:, None],
        bias=None if bias is None else bias[0].swapaxes(1, 2),
    )


def _move_positions_last(x_BLHK: jax.Array) -> jax.Array:
    """Return x as [B, H K, L], the order that XLA gives the results of the projections anyway."""
    return x_BLHK.reshape(*x_BLHK.shape[:2], -1).swapaxes(1, 2)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_blocks(inputs: Inputs, settings: Settings) -> jax.Array:
    """Return the output [B, H K, L] in the dtype of the values."""
    return _attend_fwd(inputs, settings)[0]


def _attend_fwd(inputs: Inputs, settings: Settings) -> tuple[jax.Array, Inputs]:
    out = jax.ShapeDtypeStruct(inputs.q.shape, inputs.v.dtype)
    (out,) = _call(attend_forward, inputs, (), [(out, "queries")], settings)
    return out, inputs


def _attend_bwd(settings: Settings, inputs: Inputs, do: jax.Array) -> tuple[Inputs]:
    q, k, v = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (inputs.q, inputs.k, inputs.v))
    results = [(q, "queries"), (k, "keys"), (v, "keys")]
    bias: jax.Array | None = inputs.bias
    if bias is not None:
        results.append((jax.ShapeDtypeStruct(bias.shape, jnp.float32), "bias"))
    dq, dk, dv, *dbias = _call(attend_backward, inputs, (do,), results, settings)
    none = Inputs(*[None] * len(inputs))
    d_bias = None if bias is None else dbias[0].astype(bias.dtype)
    return (none._replace(q=dq, k=dk, v=dv, bias=d_bias),)


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
    blocks = {
        "scalars": pl.BlockSpec(memory_space=pltpu.MemorySpace.SMEM),
        "queries": pl.BlockSpec((1, rows, L), lambda h, b: (b, h, 0)),
        "keys": pl.BlockSpec((1, rows, M), lambda h, b: (b, h, 0)),
        "query ids": pl.BlockSpec((1, 1, L), lambda h, b: (b, 0, 0)),
        "key ids": pl.BlockSpec((1, 1, M), lambda h, b: (b, 0, 0)),
        "bias": pl.BlockSpec((heads, M, L), lambda h, b: (h, 0, 0)),
    }
    names = "scalars", "scalars", "queries", "keys", "keys", "query ids", "key ids", "bias"
    present = [(x, blocks[name]) for x, name in zip(inputs, names) if x is not None]
    operands = [*present, *((x, blocks["queries"]) for x in gradients)]
    sums_bias = results[-1][1] == "bias"

    def run_body(*references: Any) -> None:
        remaining = iter(references)
        blocks = Inputs(*(None if x is None else next(remaining) for x in inputs))
        others = list(remaining)
        if gradients and not sums_bias:
            others.insert(1 + len(results), None)
        body(blocks, *others, settings=settings)

    return pl.pallas_call(
        run_body,
        grid=(num_heads // heads, B),
        in_specs=[spec for _, spec in operands],
        out_specs=[blocks[name] for _, name in results],
        out_shape=[shape for shape, _ in results],
        scratch_shapes=[pltpu.VMEM((rows, M), jnp.float32)] * (2 * len(gradients)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary" if sums_bias else "parallel"),
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


def _estimate_cost(arrays: list[Any], num_pairs: int, products: int) -> pl.CostEstimate:
    """Return what XLA's scheduler reads; products: multiply-adds of a pair."""
    return pl.CostEstimate(
        flops=2 * num_pairs * products,
        transcendentals=num_pairs,
        bytes_accessed=sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays),
    )
