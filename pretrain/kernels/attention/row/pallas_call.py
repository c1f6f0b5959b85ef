"""The Pallas call of the whole-row kernel: its grid, its blocks and its memory.

B batch   L length of queries   M length of keys   H heads   K head width   R padded distances
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pretrain.kernels.attention.row.blocks import Inputs
from pretrain.kernels.attention.row.tiles import SMALL_VMEM, Settings, list_tiles

# The block of each input.
BLOCKS = {
    "seeds": "scalars",
    "lengths_B": "scalars",
    "q": "queries",
    "k": "keys",
    "v": "keys",
    "query_ids": "query ids",
    "key_ids": "key ids",
    "query_ranks": "query ids",
    "key_ranks": "key ids",
    "visible": "pairs",
    "bias": "bias",
    "distance_q": "queries",
    "distances": "distances",
    "first_rows": "query ids",
    "windows": "scalars",
    "text_scores": "text scores",
    "query_texts": "query ids",
    "key_texts": "key ids",
    "squares": "scalars",
}
# The blocks whose last axis has the positions of a row.
OF_QUERIES = "queries", "query ids", "text scores"
OF_KEYS = "keys", "key ids"
# The inputs that have gradients.
GRADIENTS = "q", "k", "v", "bias", "distance_q", "distances", "text_scores"
SUMMED_OVER_ROWS = "bias", "distances"


def call_forward(
    body: Callable[..., None],
    inputs: Inputs,
    results: list[tuple[jax.ShapeDtypeStruct, str]],
    settings: Settings,
    scratch: Sequence[tuple[int, int]] = (),
) -> tuple[jax.Array, ...]:
    """Run a forward body for the groups of heads and the rows of the batch, and for the squares.

    Args:
      results: (shape and dtype, name of the block) of each.
      scratch: shapes of the memory of a program, float32.
    """
    return _call(body, inputs, (), results, [], scratch, settings)


def call_backward(
    body: Callable[..., None],
    inputs: Inputs,
    others: Sequence[tuple[jax.Array, str]],
    settings: Settings,
    scratch: Sequence[tuple[int, int]],
) -> tuple[Inputs]:
    """Run a backward body in the same way, and return the gradients of the inputs.

    others: (array, name of the block) of each that the body gets after the inputs.
    """
    names = [name for name in GRADIENTS if getattr(inputs, name) is not None]
    results = []
    for name in names:
        x = getattr(inputs, name)
        dtype = jnp.float32 if name in SUMMED_OVER_ROWS else x.dtype
        results.append((jax.ShapeDtypeStruct(x.shape, dtype), BLOCKS[name]))
    found = _call(body, inputs, others, results, names, scratch, settings)
    gradients = {name: dx.astype(getattr(inputs, name).dtype) for name, dx in zip(names, found)}
    return (Inputs(None)._replace(**gradients),)


def _call(
    body: Callable[..., None],
    inputs: Inputs,
    others: Sequence[tuple[jax.Array, str]],
    results: list[tuple[jax.ShapeDtypeStruct, str]],
    gradients: list[str],
    scratch: Sequence[tuple[int, int]],
    settings: Settings,
) -> tuple[jax.Array, ...]:
    """Run a body.

    gradients: the inputs of which the results are gradients; none in the forward pass.
    """
    B, width, L = inputs.q.shape
    M, heads = inputs.k.shape[2], settings.heads_per_program
    num_heads, rows = width // settings.head_width, heads * settings.head_width
    blocks = _make_blocks(inputs, heads, rows)
    present = [
        (x, blocks[BLOCKS[name]]) for name, x in zip(Inputs._fields, inputs) if x is not None
    ]
    operands = [*present, *((x, blocks[name]) for x, name in others)]
    sums_rows = any(name in SUMMED_OVER_ROWS for _, name in results)

    def run_body(*references: Any) -> None:
        remaining = iter(references)
        blocks = Inputs(*(None if x is None else next(remaining) for x in inputs))
        arguments = [next(remaining) for _ in others]
        if gradients:
            arguments.append(Inputs(None)._replace(**{name: next(remaining) for name in gradients}))
        body(blocks, *arguments, *remaining, settings=settings)

    semantics: list[Any] = ["parallel", "arbitrary" if sums_rows else "parallel"]
    if inputs.squares is None:
        squares, pairs = [], sum(math.prod(tile.shape) for tile in list_tiles(L, M, settings))
    else:
        squares = [inputs.squares.shape[1]]
        pairs = squares[0] * settings.tile * settings.square
    return pl.pallas_call(
        run_body,
        grid=(num_heads // heads, B, *squares),
        in_specs=[spec for _, spec in operands],
        out_specs=[blocks[name] for _, name in results],
        out_shape=[shape for shape, _ in results],
        scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=(*semantics, *("arbitrary" for _ in squares)),
            vmem_limit_bytes=None if settings.vmem_bytes == SMALL_VMEM else settings.vmem_bytes,
        ),
        cost_estimate=_estimate_cost(
            [*(x for x, _ in operands), *(shape for shape, _ in results)],
            B * num_heads * pairs,
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
        "queries": pl.BlockSpec((1, rows, L), lambda h, b, *_: (b, h, 0)),
        "keys": pl.BlockSpec((1, rows, M), lambda h, b, *_: (b, h, 0)),
        "query ids": pl.BlockSpec((1, 1, L), lambda h, b, *_: (b, 0, 0)),
        "key ids": pl.BlockSpec((1, 1, M), lambda h, b, *_: (b, 0, 0)),
        "pairs": pl.BlockSpec((1, M, L), lambda h, b, *_: (b, 0, 0)),
        "bias": pl.BlockSpec((heads, M, L), lambda h, b, *_: (h, 0, 0)),
        "distances": pl.BlockSpec((rows, R), lambda h, b, *_: (h, 0)),
        "text scores": pl.BlockSpec((1, heads, 1, L), lambda h, b, *_: (b, h, 0, 0)),
    }


def _estimate_cost(arrays: list[Any], num_pairs: int, products: int) -> pl.CostEstimate:
    """Return what XLA's scheduler reads; products: multiply-adds of a pair."""
    return pl.CostEstimate(
        flops=2 * num_pairs * products,
        transcendentals=num_pairs,
        bytes_accessed=sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays),
    )
