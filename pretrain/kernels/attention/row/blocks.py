"""The arrays of the whole-row kernel, and what a program does with a block of them.

B batch   L length of queries   M length of keys   H heads   K head width   R padded distances
T queries of a tile
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pretrain.kernels.attention.row.tiles import Settings, Square, Tile


class Inputs(NamedTuple):
    """The arrays of a call, or inside a kernel the references to the blocks of a program.

    Attributes:
      seeds: int32 [4]: the two words of the dropout's key, and the number of the first row and of
        the first head of this device.
      lengths_B: int32, how many keys are tokens; the others are padding. Or None.
      q: the queries [B, H K, L].
      k: the keys [B, H K, M].
      v: the values [B, H K, M].
      query_ids: int32 [B, 1, L], the segments of the queries. Or None.
      key_ids: int32 [B, 1, M], the segments of the keys. Or None.
      query_ranks: int32 [B, 1, L], the ranks of the queries. Or None.
      key_ranks: int32 [B, 1, M], the ranks of the keys. Or None.
      visible: int8 [B, M, L], 1 where a query may attend to a key. Or None.
      bias: [H, M, L], added to the scores. Or None.
      distance_q: the queries of a bias of distances, [B, H K, L]. Or None.
      distances: what they are multiplied with, padded, [H K, R]. Or None.
      first_rows: int32 [B, 1, L], the first distance of each query. Or None: by the order.
      windows: int32 [1 + W, tiles of all rows], how many windows of the distances each tile of
        queries in no order reads, and where these begin. Or None.
      text_scores: [B, H, 1, L], added to the scores of keys of another text. Or None.
      query_texts: int32 [B, 1, L], the texts of the queries. Or None.
      key_texts: int32 [B, 1, M], the texts of the keys. Or None.
      squares: int32 [2, squares], the first query and key of each. Or None: the row is whole.
    """

    seeds: Any
    lengths_B: Any = None
    q: Any = None
    k: Any = None
    v: Any = None
    query_ids: Any = None
    key_ids: Any = None
    query_ranks: Any = None
    key_ranks: Any = None
    visible: Any = None
    bias: Any = None
    distance_q: Any = None
    distances: Any = None
    first_rows: Any = None
    windows: Any = None
    text_scores: Any = None
    query_texts: Any = None
    key_texts: Any = None
    squares: Any = None


class Head(NamedTuple):
    """A head of a program: its number in the program, and its rows in blocks [1, heads K, ...]."""

    index: int
    rows: slice
    first_query: jax.Array  # its number among the queries of all heads and rows of the batch


def list_heads(inputs: Inputs, settings: Settings) -> list[Head]:
    """Return the heads of this program."""
    group, b = pl.program_id(0), pl.program_id(1)
    count = settings.heads_per_program
    L = settings.num_queries or settings.lengths[0] or inputs.q.shape[2]
    K = settings.head_width
    row = (inputs.seeds[2] + b) * settings.num_heads + inputs.seeds[3] + group * count
    first = settings.first_query
    numbers = [(row + i) * L + first if first else (row + i) * L for i in range(count)]
    return [Head(i, slice(i * K, (i + 1) * K), number) for i, number in enumerate(numbers)]


def compare_ids(query_ids: Any, key_ids: Any, tile: Tile | Square) -> jax.Array:
    """Return whether the query and the key of each pair have the same id, bool [keys, T]."""
    return repeat_keys(key_ids, tile) == query_ids[0, :, tile.queries]


def repeat_keys(key_ids: Any, tile: Tile | Square) -> jax.Array:
    """Return the number of each key for all queries of a tile or square, int32 [keys, T]."""
    return jnp.broadcast_to(key_ids[0, :, tile.keys], tile.shape[::-1]).T


def clear_before_first_row(total_ref: Any) -> None:
    """Write zeros to a sum over the rows, before the first of them."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)


def contract_last(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a b^T, float32."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def contract_first(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a^T b, float32."""
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
