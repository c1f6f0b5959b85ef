"""How the whole-row kernel divides an attention square: heads of a program, tiles of queries.

L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

from typing import Any, NamedTuple

MAX_LENGTH = 2048  # positions of a row that is computed whole
LANES = 128  # of a TPU's vector unit
SUBLANES = 16  # rows of a tile of bfloat16, of which the part of a head in a block is a multiple
SMALL_VMEM = 16 * 2**20  # a program's memory on a v4, and unless a call asks for more
LARGE_VMEM = 40 * 2**20  # what a call may ask for on the chips after it
SQUARES_VMEM = 48 * 2**20  # the same for rows in squares, of chips that have 64 MiB and more
VMEM_RESERVE = 2**20  # for what `count_vmem_bytes` does not count
MAX_TILE = 2**18  # scores of a tile: 1 MiB of float32
MAX_UNROLLED = 2**20  # scores of a program; more take minutes to compile
MAX_BLOCK_BYTES = 2**18  # of a block of queries, keys or values of several heads
DISTANCE_ARRAYS = 3.0  # more of them where there are distances
SQUARES = (256, 1024), (256, 512), (128, 512), (128, 256), (128, 128)  # queries, keys
SPAN = 1024  # places of a window of distances: 128 queries of which one in 6 positions is one
# The same for distances and no rule of positions: fewer queries read fewer distances for each key.
NARROW_SQUARES = (128, 4096), (128, 2048), (128, 1024), (128, 512), (128, 256), (128, 128)
TILE_ARRAYS = 4.5  # float32 arrays of a tile in a program's memory (measured with libtpu 0.0.42)


def round_up(number: int, step: int) -> int:
    """Return the least multiple of `step` from `number` on."""
    return -(-number // step) * step


class Settings(NamedTuple):
    """What is known when the kernel is traced.

    Attributes:
      rate: probability that a weight is dropped.
      reach: how many keys before and after its own position a query attends to; None: no limit.
      offset: the number of keys before the position of the first query.
      num_ordered: queries in the order of the keys, where a bias is of distances; 0 elsewhere.
      step: the range of keys of a tile begins and ends at multiples of it, and a window of
        distances begins at one.
      square: keys of a square, where a row is computed in squares; 0: whole.
      lengths: L and M without padding, where a row is computed in squares.
      span: places of a window of distances, a power of two from 8, for queries in no order.
      num_queries: queries of a row and a head of the whole call, of which this one has a part; 0:
        it has all. Dropout draws by it.
      first_query: the first of the part.
      interpret: whether the kernel runs on a CPU, slowly.
    """

    num_heads: int
    head_width: int
    scale: float
    rate: float
    reach: tuple[int | None, int | None]
    heads_per_program: int
    tile: int
    offset: int = 0
    num_ordered: int = 0
    bias_scale: float = 1.0
    step: int = LANES
    square: int = 0
    lengths: tuple[int, int] = (0, 0)
    span: int = SPAN
    num_queries: int = 0
    first_query: int = 0
    vmem_bytes: int = SMALL_VMEM
    interpret: bool = False


class PairTerms(NamedTuple):
    """What a call adds to the scores of all pairs, or hides of them, by arrays of the pairs.

    Attributes:
      has_bias: whether a bias is an array.
      has_distances: whether it is of distances.
      has_mask: whether the mask is an array.
    """

    has_bias: bool = False
    has_distances: bool = False
    has_mask: bool = False


class Tile(NamedTuple):
    """Queries that are computed at once, and the keys that they read.

    Attributes:
      keys: a range of keys with all that the rule of `reach` shows to these queries.
      others: the ranges of keys before and after it.
    """

    queries: slice
    keys: slice
    others: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of keys and of queries."""
        return self.keys.stop - self.keys.start, self.queries.stop - self.queries.start


class Square(NamedTuple):
    """Queries and keys that are computed at once, of a row that is computed in squares.

    Attributes:
      keys: positions of the keys, a slice of Pallas.
    """

    queries: Any
    keys: Any

    @property
    def shape(self) -> tuple[int, int]:
        """The number of keys and of queries."""
        return self.keys.size, self.queries.size


def list_tiles(L: int, M: int, settings: Settings) -> list[Tile]:
    """Return the tiles of a head.

    Where `reach` shows no key to some query, such as one far after the last key, the tile reads
    all keys: the query's output is the mean of all values.
    """
    num_before, num_after = settings.reach
    tiles = []
    for start in range(0, L, settings.tile):
        stop = min(start + settings.tile, L)
        first, last = start + settings.offset, stop - 1 + settings.offset  # positions among keys
        begin, end = 0, M
        if num_before is None or last - num_before < M:
            if num_before is not None:
                begin = max(first - num_before, 0) // settings.step * settings.step
            if num_after is not None:
                end = min(round_up(last + 1 + num_after, settings.step), M)
        others = tuple(slice(*limits) for limits in ((0, begin), (end, M)) if limits[0] < limits[1])
        tiles.append(Tile(slice(start, stop), slice(begin, end), others))
    return tiles


def hides_padded_keys(num_padded: int, settings: Settings) -> bool:
    """Return whether a mask must hide the keys after a row, which are there for whole squares.

    num_padded: the number of keys with them.
    """
    L, M = settings.lengths
    _, num_after = settings.reach
    if settings.square and M < num_padded:
        return num_after is None or L + settings.offset + num_after > M
    return False


def choose_blocks(
    H: int,
    K: int,
    L: int,
    M: int,
    itemsize: int,
    terms: PairTerms,
    reach: tuple[int | None, int | None],
    vmem_bytes: int = SMALL_VMEM,
) -> tuple[int, int]:
    """Return the heads of a program, a divisor of H, and the queries of a tile.

    A tile has at most `MAX_TILE` scores. Where `reach` hides keys, it has no more than 128 queries:
    a shorter tile leaves out more of the hidden pairs. So it has where there are distances: it
    reads fewer of them.
    """
    longest = max(LANES, MAX_TILE // M // LANES * LANES)
    if reach != (None, None) or terms.has_distances:
        longest = min(longest, LANES)

    def fits(heads: int, tile: int) -> bool:
        if count_vmem_bytes(heads, K, L, M, itemsize, terms, tile) > vmem_bytes:
            return False
        return heads == 1 or (
            heads * L * M <= MAX_UNROLLED and heads * K * max(L, M) * itemsize <= MAX_BLOCK_BYTES
        )

    for tile in range(longest, 0, -LANES):
        heads = [heads for heads in range(1, H + 1) if H % heads == 0 and fits(heads, tile)]
        if heads:
            return max(heads), min(tile, L)
    return 1, min(LANES, L)


def count_vmem_bytes(
    heads: int, K: int, L: int, M: int, itemsize: int, terms: PairTerms, tile: int = LANES
) -> int:
    """Return the bytes of a program's memory in the backward pass.

    It holds each block twice, to load the next one meanwhile: queries and the gradients of output
    and queries; keys, values and their gradients; the bias and its gradient; the mask; the queries
    of the distances and their gradient, the distances and the sum of theirs. The gradients of keys
    and values are summed in float32.
    """
    L, M = (round_up(length, LANES) for length in (L, M))
    blocks = heads * K * (3 * L + 4 * M) * itemsize + terms.has_bias * 2 * heads * L * M * 4
    blocks += terms.has_mask * L * M
    tile_arrays = TILE_ARRAYS
    if terms.has_distances:
        blocks += heads * K * (2 * L * itemsize + (M + 2 * L) * (itemsize + 4)) + heads * 64 * L
        tile_arrays += DISTANCE_ARRAYS
    tile_bytes = round(tile_arrays * min(tile, L) * M * 4)
    return 2 * blocks + 2 * heads * K * M * 4 + tile_bytes + VMEM_RESERVE


def choose_square(
    K: int,
    L: int,
    M: int,
    itemsize: int,
    num_distances: int,
    vmem_bytes: int,
    hides_places: bool = True,
    span: int = 0,
) -> tuple[int, int] | None:
    """Return the queries and keys of a square of a long row, the best that fits; None if none.

    A larger one has fewer programs and corrections, and more pairs that a causal mask hides. Where
    there are distances and no pairs to leave out, the best one computes the fewest scores of keys,
    padding included, and of distances.

    Args:
      hides_places: whether a mask hides keys by their position.
      span: places of a window of distances, of queries in no order; 0: they are in order.
    """
    is_narrow = num_distances > 0 and (span > 0 or not hides_places)

    def count_scores(square: tuple[int, int]) -> int:
        return -(-M // square[1]) * (2 * square[1] + (span or square[0]))

    found = [
        square
        for square in (NARROW_SQUARES if is_narrow else SQUARES)
        if count_square_bytes(K, L, M, itemsize, num_distances, square, span) <= vmem_bytes
    ]
    if is_narrow:
        return min(found, key=count_scores, default=None)
    return found[0] if found else None


def count_square_bytes(
    K: int,
    L: int,
    M: int,
    itemsize: int,
    num_distances: int,
    square: tuple[int, int] = SQUARES[-1],
    span: int = 0,
) -> int:
    """Return the bytes of a program's memory in the backward pass of a long row of one head.

    It holds what `count_vmem_bytes` counts without a bias or a mask of pairs, the logarithms of the
    sums, and the products of outputs and their gradients.

    span: as of `choose_square`.
    """
    L, M = round_up(L, square[0]), round_up(M, square[1])
    blocks = K * (3 * L + 4 * M) * itemsize + 2 * 64 * L
    columns = TILE_ARRAYS * square[1]
    if num_distances:
        margin = max(2 * square[0], span)
        R = num_distances + margin + square[1]
        blocks += K * (2 * L * itemsize + R * (itemsize + 4)) + 64 * L
        columns += DISTANCE_ARRAYS * (square[1] + margin)
    square_bytes = round(columns * square[0] * 4)
    return 2 * blocks + 2 * K * M * 4 + square_bytes + VMEM_RESERVE
