"""The call of the chunk kernel on one device, and its gradient.

B batch   H heads   N chunks   C positions of a chunk   K head width   S = N C
G programs of a head
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from models.layers.dropout import KeyedDropout
from pretrain.kernels.attention.chunk.chunk_kernels import (
    ChunkInputs,
    ChunkSettings,
    attend_backward,
    attend_forward,
)
from pretrain.kernels.attention.row.tiles import (
    LANES,
    SMALL_VMEM,
    TILE_ARRAYS,
    VMEM_RESERVE,
    round_up,
)

MAX_POSITIONS = 1024  # of the chunks of a program; more take long to compile


def choose_chunks(num_chunks: int, C: int, K: int, itemsize: int) -> int | None:
    """Return the number of chunks of a program, a divisor of `num_chunks`; None if none fits.

    Args:
      K: width of a head.
      itemsize: bytes of a number of the queries.
    """
    fitting = [
        n
        for n in range(1, max(MAX_POSITIONS // C, 1) + 1)
        if num_chunks % n == 0 and count_vmem_bytes(n, C, K, itemsize) <= SMALL_VMEM
    ]
    return max(fitting, default=None)


def count_vmem_bytes(num_chunks: int, C: int, K: int, itemsize: int) -> int:
    """Return the bytes of a program's memory in the backward pass.

    It holds each block twice, to load the next one meanwhile: queries, keys, values, the gradients
    of these and of the output; the keys and values of the chunk before, and their gradients in
    float32. The gradients of keys and values are summed in float32. A head takes whole lanes.
    """
    K, own, scores = round_up(K, LANES), num_chunks * C, 2 * C * C
    blocks = K * (7 * own + 2 * C) * itemsize + 2 * C * K * 4
    return round(2 * blocks + 2 * (own + C) * K * 4 + TILE_ARRAYS * scores * 4 + VMEM_RESERVE)


def average_local_chunks(
    q_BHNCK: jax.Array,
    k_BHNCK: jax.Array,
    v_BHNCK: jax.Array,
    positions_BHNC: jax.Array | None,
    ids_BHNC: jax.Array | None,
    *,
    scale: float,
    avoids_self: bool,
    drop: KeyedDropout | None,
    first: tuple[int | jax.Array, int | jax.Array] = (0, 0),
    num_heads: int | None = None,
    chunks_per_program: int | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Compute `key_chunks.average_chunks` of the rows and heads of one device.

    Args:
      q_BHNCK, k_BHNCK, v_BHNCK, positions_BHNC, ids_BHNC, scale, avoids_self: as there.
      first: the numbers of the first row and of the first head in the whole batch, by which the
        dropped weights do not depend on the mesh.
      num_heads: heads of the whole model; H by default.
      chunks_per_program: a divisor of N; by default as `choose_chunks` chooses.
    """
    B, H, N, C, K = q_BHNCK.shape
    settings = ChunkSettings(
        chunk=C,
        chunks_per_program=chunks_per_program
        or choose_chunks(N, C, K, q_BHNCK.dtype.itemsize)
        or 1,
        num_heads=num_heads or H,
        scale=scale,
        avoids_self=avoids_self,
        rate=drop.rate if drop else 0.0,
        interpret=interpret,
    )
    words = jnp.zeros(2, jnp.uint32) if drop is None else drop.key
    numbers = [jnp.asarray(number, jnp.int32) for number in first]
    seeds = jnp.concatenate([jax.lax.bitcast_convert_type(words, jnp.int32), jnp.stack(numbers)])
    q, k, v = (x.reshape(B, H, N * C, -1) for x in (q_BHNCK, k_BHNCK, v_BHNCK))
    positions, ids = (
        None if x is None else jnp.broadcast_to(x, (B, H, N, C)).reshape(B, H, 1, N * C)
        for x in (positions_BHNC, ids_BHNC)
    )
    attend: Any = attend_chunks  # its type does not say what it returns
    out, totals = attend(ChunkInputs(seeds, q, k, v, positions, ids), settings)
    return out.reshape(*q_BHNCK.shape[:-1], -1), totals.reshape(B, H, N, C)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_chunks(inputs: ChunkInputs, settings: ChunkSettings) -> tuple[jax.Array, jax.Array]:
    """Return the outputs [B, H, S, K] and log(sum(exp(scores))), float32 [B, H, 1, S]."""
    return _attend_fwd(inputs, settings)[0]


def _attend_fwd(inputs: ChunkInputs, settings: ChunkSettings) -> tuple[Any, Any]:
    B, H, S, _ = inputs.q.shape
    out, totals = _call(
        attend_forward,
        inputs,
        [],
        [
            jax.ShapeDtypeStruct(inputs.v.shape, inputs.v.dtype),
            jax.ShapeDtypeStruct((B, H, 1, S), jnp.float32),
        ],
        settings,
    )
    return (out, totals), (inputs, out, totals)


def _attend_bwd(settings: ChunkSettings, residuals: Any, gradients: Any) -> tuple[ChunkInputs]:
    (inputs, out, totals), (do, d_totals) = residuals, gradients
    (B, H, S, _), C = inputs.q.shape, settings.chunk
    G = S // (C * settings.chunks_per_program)
    delta = (out.astype(jnp.float32) * do.astype(jnp.float32)).sum(-1)[:, :, None] - d_totals
    previous = [
        jax.ShapeDtypeStruct((B, H, G, C, x.shape[-1]), jnp.float32) for x in (inputs.k, inputs.v)
    ]
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (inputs.q, inputs.k, inputs.v)]
    dq, *others = _call(
        attend_backward, inputs, [do, totals, delta], [*results, *previous], settings
    )
    dk, dv = (_add_previous(own, before) for own, before in zip(others[:2], others[2:]))
    return (ChunkInputs(None, dq, dk, dv),)


attend_chunks.defvjp(_attend_fwd, _attend_bwd)


def _add_previous(own: jax.Array, previous: jax.Array) -> jax.Array:
    """Return gradients [B, H, S, K] with what the next program adds to the last chunk of each.

    previous: float32 [B, H, G, C, K], for the chunk before each program's.
    """
    B, H, G, C, K = previous.shape
    own_BHGXK = own.reshape(B, H, G, -1, K)
    last = own_BHGXK[..., -C:, :].astype(jnp.float32) + jnp.roll(previous, -1, axis=2)
    return own_BHGXK.at[..., -C:, :].set(last.astype(own.dtype)).reshape(own.shape)


def _call(
    body: Callable[..., None],
    inputs: ChunkInputs,
    others: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
    settings: ChunkSettings,
) -> tuple[jax.Array, ...]:
    """Run a body for the rows, the heads and the groups of chunks.

    others: arrays that the body gets after the inputs and the inputs of the chunk before.
    """
    B, H, S, _ = inputs.q.shape
    C, n = settings.chunk, settings.chunks_per_program
    make_block = partial(_make_block, settings=settings)
    own = [x for x in inputs[1:] if x is not None]
    of_keys = inputs._replace(seeds=None, q=None)
    before = [x for x in of_keys if x is not None]
    operands = [
        (inputs.seeds, pl.BlockSpec(memory_space=pltpu.MemorySpace.SMEM)),
        *((x, make_block(x)) for x in own),
        *((x, make_block(x, is_before=True)) for x in before),
        *((x, make_block(x)) for x in others),
    ]

    def run_body(*references: Any) -> None:
        remaining = iter(references)
        blocks = ChunkInputs(*(None if x is None else next(remaining) for x in inputs))
        previous = ChunkInputs(*(None if x is None else next(remaining) for x in of_keys))
        body(blocks, previous, *remaining, settings=settings)

    widths = [x.shape[-1] for x in (inputs.k, inputs.v)]
    is_backward = bool(others)
    pairs = B * H * S * 2 * C
    arrays = [*(x for x, _ in operands), *results]
    return pl.pallas_call(
        run_body,
        grid=(B, H, S // (C * n)),
        in_specs=[spec for _, spec in operands],
        out_specs=[make_block(x) for x in results],
        out_shape=list(results),
        scratch_shapes=[
            pltpu.VMEM(((n + 1) * C, width), jnp.float32) for width in widths if is_backward
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 3),
        cost_estimate=pl.CostEstimate(
            flops=2 * pairs * widths[0] * (5 if is_backward else 2),
            transcendentals=pairs,
            bytes_accessed=sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays),
        ),
        interpret=settings.interpret,
        name=body.__name__,
    )(*(x for x, _ in operands))


def _make_block(x: Any, *, settings: ChunkSettings, is_before: bool = False) -> pl.BlockSpec:
    """Return the block of an array [B, H, S, K], [B, H, 1, S] or [B, H, G, C, K] of a program.

    is_before: the block of the chunk before the program's, which for the first is the last.
    """
    if x.ndim == 5:
        return pl.BlockSpec((1, 1, 1, *x.shape[3:]), lambda b, h, g: (b, h, g, 0, 0))
    C, n = settings.chunk, settings.chunks_per_program
    is_row = x.shape[2] == 1
    size, S = C if is_before else n * C, x.shape[3] if is_row else x.shape[2]

    def find_step(g: Any) -> Any:
        return (g * n - 1 + S // C) % (S // C) if is_before else g

    if is_row:
        return pl.BlockSpec((1, 1, 1, size), lambda b, h, g: (b, h, 0, find_step(g)))
    return pl.BlockSpec((1, 1, size, x.shape[3]), lambda b, h, g: (b, h, find_step(g), 0))
