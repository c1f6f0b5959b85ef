"""The bodies of the chunk kernel, forward and backward.

A program computes a group of consecutive chunks of one head, one after the other. Queries are in
the lanes: scores are [keys, queries], and a sum over keys adds rows.

B batch   H heads   S positions of all chunks   K head width   C positions of a chunk
W keys of two chunks
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from models.layers.long_rows.key_chunks import HIDDEN_SCORE, OWN_SCORE
from pretrain.kernels.attention.row.blocks import contract_first, contract_last
from pretrain.kernels.attention.row.dropped_weights import make_keep_tile
from pretrain.kernels.attention.row.tiles import LANES


class ChunkSettings(NamedTuple):
    """What is known when the kernel is traced.

    Attributes:
      avoids_self: whether a query attends to itself only where it may attend to nothing else.
      rate: probability that a weight is dropped.
      interpret: whether the kernel runs on a CPU, slowly.
    """

    chunk: int
    chunks_per_program: int
    num_heads: int
    scale: float
    avoids_self: bool
    rate: float
    interpret: bool = False


class ChunkInputs(NamedTuple):
    """The arrays of a call, or inside a kernel the references to the blocks of a program.

    Attributes:
      seeds: int32 [4]: the two words of the dropout's key, and the number of the first row and of
        the first head of this device.
      q: the queries [B, H, S, K].
      k: the keys [B, H, S, K].
      v: the values [B, H, S, K].
      positions: int32 [B, H, 1, S], the positions of the tokens. Or None: by the order.
      ids: int32 [B, H, 1, S], the texts of the tokens. Or None.
    """

    seeds: Any
    q: Any
    k: Any
    v: Any
    positions: Any = None
    ids: Any = None


class Chunk(NamedTuple):
    """A chunk of queries with its keys.

    Attributes:
      q: the queries [C, K].
      k: the keys of the chunk before, then its own, [W, K].
      v: the values of these, [W, K].
      scores: float32 [W, C], replaced for hidden pairs and for a query with itself.
      is_replaced: which of the scores are replaced, bool [W, C].
      keep: which weights dropout leaves, bool [W, C]; None for all.
    """

    queries: slice
    q: jax.Array
    k: jax.Array
    v: jax.Array
    scores: jax.Array
    is_replaced: jax.Array
    keep: jax.Array | None


def read_pair(own: Any, previous: Any, i: int, size: int, axis: int) -> jax.Array:
    """Return a block's entries of chunk i - 1 and of chunk i, along an axis of [rows, columns].

    own: the block of the chunks of this program.
    previous: the block of the chunk before them.
    """

    def read(block: Any, start: int, stop: int) -> jax.Array:
        places = slice(start, stop)
        return block[0, 0, places, :] if axis == 0 else block[0, 0, :, places]

    if i:
        return read(own, (i - 1) * size, (i + 1) * size)
    return jnp.concatenate([read(previous, 0, size), read(own, 0, size)], axis=axis)


def turn_to_column(row_1W: jax.Array, num_columns: int) -> jax.Array:
    """Return [W, columns], in each column the numbers of a row."""
    width = min(num_columns, LANES)
    part = jnp.broadcast_to(row_1W, (width, row_1W.shape[1])).T
    return jnp.concatenate([part] * (num_columns // width), axis=1)


def find_hidden_pairs(
    inputs: ChunkInputs, previous: ChunkInputs, i: int, settings: ChunkSettings
) -> tuple[jax.Array, jax.Array]:
    """Return which pairs of chunk i are hidden, and which are a query with itself, bool [W, C]."""
    C = settings.chunk
    queries = slice(i * C, (i + 1) * C)
    if inputs.positions is None:
        # Before the first chunk there is the last one, with later positions.
        first = (pl.program_id(2) * settings.chunks_per_program + i) * C
        key_WC = jax.lax.broadcasted_iota(jnp.int32, (2 * C, C), 0) + (first - C)
        query_WC = jax.lax.broadcasted_iota(jnp.int32, (2 * C, C), 1) + first
        visible = (query_WC >= key_WC) & (key_WC >= 0)
    else:
        query_WC = inputs.positions[0, 0, :, queries]
        key_WC = turn_to_column(read_pair(inputs.positions, previous.positions, i, C, axis=1), C)
        visible = query_WC >= key_WC
    if inputs.ids is not None:
        ids_1W = read_pair(inputs.ids, previous.ids, i, C, axis=1)
        visible &= inputs.ids[0, 0, :, queries] == turn_to_column(ids_1W, C)
    return ~visible, query_WC == key_WC


def read_chunk(
    inputs: ChunkInputs, previous: ChunkInputs, i: int, settings: ChunkSettings
) -> Chunk:
    """Return chunk i of a program."""
    C = settings.chunk
    queries = slice(i * C, (i + 1) * C)
    q = inputs.q[0, 0, queries, :]
    k, v = (
        read_pair(own, before, i, C, axis=0)
        for own, before in ((inputs.k, previous.k), (inputs.v, previous.v))
    )
    is_hidden, is_own = find_hidden_pairs(inputs, previous, i, settings)
    scores = jnp.where(is_hidden, HIDDEN_SCORE, contract_last(k, q) * settings.scale)
    if settings.avoids_self:
        scores, is_hidden = jnp.where(is_own, OWN_SCORE, scores), is_hidden | is_own
    keep = make_keep_chunk(inputs, i, settings) if settings.rate else None
    return Chunk(queries, q, k, v, scores, is_hidden, keep)


def make_keep_chunk(inputs: ChunkInputs, i: int, settings: ChunkSettings) -> jax.Array:
    """Return which weights of chunk i dropout leaves, bool [W, C]."""
    C, seeds = settings.chunk, inputs.seeds
    b, h, group = (pl.program_id(axis) for axis in range(3))
    head = (seeds[2] + b) * settings.num_heads + seeds[3] + h
    groups = pl.num_programs(2)
    first_query = ((head * groups + group) * settings.chunks_per_program + i) * C
    return make_keep_tile((seeds[0], seeds[1]), settings.rate, first_query, 0, (2 * C, C))


def attend_forward(
    inputs: ChunkInputs,
    previous: ChunkInputs,
    out_ref: Any,
    total_ref: Any,
    *,
    settings: ChunkSettings,
) -> None:
    """Write the outputs [1, 1, chunks C, K] of a program, and log(sum(exp(scores))) of each query.

    previous: the blocks of the chunk before the program's.
    """
    for i in range(settings.chunks_per_program):
        chunk = read_chunk(inputs, previous, i, settings)
        largest_1C = chunk.scores.max(0, keepdims=True)
        sum_1C = jnp.exp(chunk.scores - largest_1C).sum(0, keepdims=True)
        total_1C = largest_1C + jnp.log(sum_1C)
        total_ref[0, 0, :, chunk.queries] = total_1C
        # By the rounded total, as `average_chunks`, and as the backward pass does.
        weights = jnp.exp(chunk.scores - total_1C)
        if chunk.keep is not None:
            weights = jnp.where(chunk.keep, weights * (1 / (1 - settings.rate)), 0.0)
        out = contract_first(weights.astype(chunk.v.dtype), chunk.v)
        out_ref[0, 0, chunk.queries, :] = out.astype(out_ref.dtype)


def attend_backward(
    inputs: ChunkInputs,
    previous: ChunkInputs,
    do_ref: Any,
    total_ref: Any,
    delta_ref: Any,
    dq_ref: Any,
    dk_ref: Any,
    dv_ref: Any,
    previous_dk_ref: Any,
    previous_dv_ref: Any,
    dk_sum: Any,
    dv_sum: Any,
    *,
    settings: ChunkSettings,
) -> None:
    """Write the gradients of a program's queries, keys and values, and of the chunk before them.

    total_ref: of the forward pass.
    delta_ref: the product of each query's output and its gradient, less the gradient of its total.
    previous_dk_ref, previous_dv_ref: float32 [1, 1, 1, C, K], what the program's queries add to
      the gradients of the chunk before.
    dk_sum, dv_sum: float32 [(chunks + 1) C, K], memory of the program.
    """
    C = settings.chunk
    dk_sum[...], dv_sum[...] = jnp.zeros_like(dk_sum), jnp.zeros_like(dv_sum)
    for i in range(settings.chunks_per_program):
        chunk = read_chunk(inputs, previous, i, settings)
        do, keys = do_ref[0, 0, chunk.queries, :], slice(i * C, (i + 2) * C)
        softmax = jnp.exp(chunk.scores - total_ref[0, 0, :, chunk.queries])
        d_softmax, dropped = contract_last(chunk.v, do), softmax
        if chunk.keep is not None:
            factor = jnp.where(chunk.keep, 1 / (1 - settings.rate), 0.0)
            d_softmax, dropped = d_softmax * factor, softmax * factor
        d_scores = softmax * (d_softmax - delta_ref[0, 0, :, chunk.queries])
        d_scores = jnp.where(chunk.is_replaced, 0.0, d_scores).astype(chunk.q.dtype)
        dot = lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32)  # noqa: E731
        dv_sum[keys, :] += dot(dropped.astype(do.dtype), do)
        dk_sum[keys, :] += dot(d_scores, chunk.q) * settings.scale
        dq = contract_first(d_scores, chunk.k) * settings.scale
        dq_ref[0, 0, chunk.queries, :] = dq.astype(dq_ref.dtype)
    for total, own_ref, previous_ref in (
        (dk_sum, dk_ref, previous_dk_ref),
        (dv_sum, dv_ref, previous_dv_ref),
    ):
        previous_ref[0, 0, 0] = total[:C, :]
        own_ref[0, 0] = total[C:, :].astype(own_ref.dtype)
