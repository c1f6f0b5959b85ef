"""Both streams of XLNet in the whole-row kernel, in squares and in whole rows, are `attend`.

B batch   L length of the content stream   P queries of the query stream   N keys   H heads
K head width
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.layers.masks import Mask, make_dense_bias
from models.layers.relative.distance_bias import DistanceBias
from pretrain.config import Mesh
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.call import attend_local_rows
from pretrain.kernels.attention.row.sharded import attend_with_rows, find_row_obstacle
from pretrain.kernels.attention.row.spread_queries import find_windows
from pretrain.kernels.attention.row.tiles import (
    SMALL_VMEM,
    SQUARES_VMEM,
    Settings,
    choose_square,
)
from pretrain.mesh.sharding import make_mesh
from pretrain.training.flops import count_flops
from tests.draws import IS_BOARD, draw_examples
from tests.pretrain.kernels.attention.test_row_attention import compare, draw, make_drop
from tests.pretrain.kernels.attention.test_row_attention import differentiate as differentiate_rows
from tests.pretrain.kernels.attention.test_row_distances import (
    differentiate,
    draw_two_streams,
    measure_errors,
)

pytestmark = pytest.mark.slow

B, H, K = 2, 2, 12
WHOLE = dict(tile=16, step=8, interpret=True)
SQUARES = WHOLE | dict(square=24, span=16)  # several windows in a short row
LONG = 2200  # more than a row that is computed whole
POSITIONS = "rising", "random", "equal", "falling", "spread"


def draw_positions(kind, L, P, rows=B):
    """Return positions [B, P] of a row of L, of which the last third of a rising row are unused."""
    rng = np.random.default_rng(3)
    random_BP = np.sort(rng.integers(0, L, (rows, P)), axis=1)
    unused_P = np.arange(P) > 2 * P // 3
    return {
        "rising": np.where(unused_P, 0, random_BP),
        "random": rng.permuted(random_BP, axis=1),
        "equal": np.full((rows, P), L - 1),
        "falling": random_BP[:, ::-1],
        "spread": np.broadcast_to(np.arange(P) % 2 * (L - 1), (rows, P)),
    }[kind]


def draw_streams(L, memory, P, kind="rising", texts=True, rows=B):
    """Return (q, k, v, bias) and the mask of XLNet, with keys and queries of all kinds of ranks."""
    (*qkv, bias), _ = draw_two_streams(L, memory, P, texts, rows=rows)
    rng = np.random.default_rng(2)
    ranks = rng.integers(0, 5, (rows, L + P)), rng.integers(-1, 5, (rows, memory + L))
    ranks[1][rng.random((rows, memory + L)) < 0.2] = np.iinfo(np.int32).max
    positions_BP = jnp.asarray(draw_positions(kind, L, P, rows), jnp.int32)
    mask = Mask(ranks=tuple(jnp.asarray(x, jnp.int32) for x in ranks), offset=memory)
    return (*qkv, bias.replace(position_BP=positions_BP)), mask


def compare_streams(sizes, L, memory, P, kind, texts, rate):
    """Compare a kernel of these sizes with `attend`, in float32, with a memory, texts, unused slots,
    and queries that may read nothing.
    """
    arrays, mask = draw_streams(L, memory, P, kind, texts)
    options = dict(mask=mask, drop=make_drop(rate) if rate else None)
    compare(
        differentiate(partial(attend_local_rows, **sizes), arrays, **options),
        differentiate(attend, arrays, **options),
    )


DRAWN = dict(
    L=st.integers(1, 60 if IS_BOARD else 48),
    memory=st.integers(0, 30 if IS_BOARD else 20),
    P=st.integers(1, 40 if IS_BOARD else 24),
    kind=st.sampled_from(POSITIONS),
    texts=st.booleans(),
    rate=st.sampled_from((0.0, 0.3)),
)


@pytest.mark.more
@draw_examples(2, 6)
@given(**DRAWN)
@example(L=48, memory=0, P=16, kind="rising", texts=True, rate=0.1)  # whole squares
@example(
    L=45, memory=7, P=21, kind="spread", texts=True, rate=0.3
)  # each tile of queries has several windows
@example(L=40, memory=5, P=24, kind="falling", texts=False, rate=0.1)
@example(L=40, memory=0, P=9, kind="random", texts=True, rate=0.0)
@example(L=20, memory=5, P=20, kind="equal", texts=True, rate=0.1)
def test_two_streams_in_squares_are_attend(**drawn):
    compare_streams(SQUARES, **drawn)


@draw_examples(2, 6)
@given(**DRAWN)
@example(L=40, memory=5, P=24, kind="falling", texts=False, rate=0.1)
@example(L=20, memory=5, P=20, kind="equal", texts=True, rate=0.3)
@example(L=48, memory=0, P=16, kind="rising", texts=True, rate=0.0)
def test_two_streams_in_whole_rows_are_attend(**drawn):
    """They have no windows, so the kinds of positions do not differ for the kernel."""
    compare_streams(WHOLE, **drawn)


@pytest.mark.more
@pytest.mark.parametrize("kind", ["rising", "spread"])
def test_errors_in_bfloat16_are_those_of_attend(kind):
    """The mean error of each result against float32 is at most 1.2 times `attend`'s."""
    kernel = partial(attend_local_rows, **SQUARES)
    for own, other in measure_errors(kernel, *draw_streams(60, 5, 20, kind)):
        assert own <= 1.2 * other


@pytest.mark.more
@pytest.mark.parametrize(("L", "atol"), [(24, 3e-6), (LONG, 2e-5)], ids=["whole rows", "squares"])
def test_a_mesh_computes_the_same(L, atol):
    """A long row's squares and windows are those that a chip would have; no option chooses them."""
    mesh = make_mesh(Mesh(2, 1, 2), jax.devices()[:4])
    arrays, mask = draw_streams(L, 0, 21)
    options = dict(mask=mask, drop=make_drop(0.1))
    with jax.set_mesh(mesh):
        kernel = differentiate(
            partial(attend_with_rows, mesh=mesh, interpret=True), arrays, **options
        )
    compare(kernel, differentiate(attend, arrays, **options), atol=atol)


def test_a_part_of_the_queries_is_that_of_the_whole():
    """Of the mask, of the bias and of its texts: what each stream's call gets."""
    L, P = 20, 7
    (*_, bias), mask = draw_streams(L, 5, P)
    parts = bias.split_queries()
    assert [part.num_ordered for part in parts] == [L, 0]
    dense = jnp.concatenate([make_dense_bias(part) for part in parts], axis=2)
    np.testing.assert_allclose(dense, bias.make_dense(), atol=1e-5)
    visible = [
        mask.take_queries(*limits).make_dense(limits[1] - limits[0], 5 + L)
        for limits in ((0, L), (L, L + P))
    ]
    np.testing.assert_array_equal(jnp.concatenate(visible, axis=2), mask.make_dense(L + P, 5 + L))


@pytest.mark.held_by(4)
@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize(("L", "P"), [(60, 40), (16, 16), (100, 3)])
def test_each_query_has_one_window(kind, L, P):
    """Windows of a tile begin at multiples of 8, the first with the least place, and do not overlap."""
    own = Settings(1, 16, 1.0, 0.0, (None, None), 1, tile=16, square=24, step=8, span=16)
    _, bias = draw_streams(L, 0, P, kind)[0][-1].split_queries()
    place_B1P, window_WN = map(np.asarray, find_windows(bias, own._replace(lengths=(P, L))))
    assert (place_B1P == L - 1 - draw_positions(kind, L, P)[:, None]).all()
    tiles = [row[start : start + 16] for row in place_B1P[:, 0] for start in range(0, P, 16)]
    for tile, (count, *starts) in zip(tiles, window_WN.T, strict=True):
        found = np.array([(start <= tile) & (tile < start + 16) for start in starts[:count]])
        assert (found.sum(0) == 1).all() and found.any(1).all()
        assert starts[0] == tile.min() // 8 * 8 and not any(start % 8 for start in starts[:count])


def test_rising_positions_need_one_window():
    """One predicted token in six, in spans of up to five: `xlnet_base` in rows of 8,192."""
    rng = np.random.default_rng(0)
    position_BP = np.sort(np.arange(1365) * 6 + rng.integers(-24, 25, (4, 1365)).clip(0, 8191))
    own = Settings(1, 64, 1.0, 0.0, (None, None), 1, tile=128, square=2048, lengths=(1365, 8192))
    bias = DistanceBias(
        jnp.zeros((4, 1365, 1, 8)),
        jnp.zeros((16383, 1, 8)),
        num_keys=8192,
        scale=1.0,
        position_BP=jnp.asarray(position_BP - 8192, jnp.int32),
    )
    assert (find_windows(bias, own)[1][0] == 1).all()


def test_squares_fit_into_the_memory_of_a_chip():
    """XLNet-base's rows of 8,192, whose heads have 64 numbers; with a memory, less is padding."""
    stream = dict(hides_places=False)
    others = dict(hides_places=False, span=1024)
    assert choose_square(64, 8192, 8192, 2, 16383, SQUARES_VMEM, **stream) == (128, 2048)
    assert choose_square(64, 8192, 8576, 2, 16767, SQUARES_VMEM, **stream) == (128, 1024)
    assert choose_square(64, 1365, 8192, 2, 16383, SQUARES_VMEM, **others) == (128, 4096)
    assert choose_square(64, 2304, 2304, 2, 4607, SMALL_VMEM, **stream) == (128, 512)
    assert choose_square(64, 8192, 8192, 2, 16383, SMALL_VMEM, **stream) is None


def test_a_plan_counts_one_window():
    """Of 256 keys in squares of 64 and 32 queries in tiles of 16 with windows of 16; a tile of the
    content stream has 16 distances next to its keys.
    """
    L, P, width = 256, 32, 16
    arrays, mask = draw_streams(L, 0, P)
    q, k, v, bias = jax.eval_shape(lambda: arrays)
    sizes = dict(tile=16, square=64, span=16, step=8)

    def compute_gradients(q, k, v, distance_q, r):
        def sum_output(q, k, v, distance_q, r):
            whole = bias.replace(
                q_BLHK=distance_q,
                r_RHK=r,
                position_BP=arrays[3].position_BP,
                texts=arrays[3].texts,
            )
            return attend_local_rows(q, k, v, mask=mask, bias=whole, **sizes).sum()

        return jax.grad(sum_output, argnums=range(5))(q, k, v, distance_q, r)

    jaxpr = jax.make_jaxpr(compute_gradients)(q, k, v, bias.q_BLHK, bias.r_RHK)
    products = 7 * 64 + 4 * (64 + 16)  # the first two of each forward, and all backward
    assert count_flops(jaxpr) == 2 * B * H * (L + P) * L // 64 * products * width


def test_a_long_row_of_both_streams_has_no_obstacle():
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    q, k = (jax.ShapeDtypeStruct((B, n, H, 16), jnp.bfloat16) for n in (LONG + 5, LONG))
    (*_, bias), mask = draw_streams(LONG, 0, 5)
    assert find_row_obstacle(q, k, mask, bias, make_drop(), mesh) is None


@pytest.mark.more
def test_ranks_alone_are_attend():
    """Without a bias: more queries than keys, of which some are after the last key."""
    L, N = 40, 30
    arrays = *(draw(B, n, H, K, seed=seed) for seed, n in enumerate((L, N, N))), None
    do = draw(B, L, H, K, seed=3)
    rng = np.random.default_rng(1)
    ranks = tuple(jnp.asarray(rng.integers(0, 9, (B, n)), jnp.int32) for n in (L, N))
    valid = jnp.arange(N) < jnp.asarray([[N], [9]])
    for mask in (Mask(ranks=ranks), Mask(valid, ranks=ranks, offset=3)):
        for sizes in (WHOLE, SQUARES):
            kernel = partial(attend_local_rows, **sizes)
            compare(
                *(
                    differentiate_rows(function, arrays, do, mask=mask, drop=make_drop())
                    for function in (kernel, attend)
                )
            )
