"""The whole-row kernel in squares, interpreted on a CPU, is `attend` too.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.layers.masks import Mask, make_causal_mask
from models.layers.relative.distance_bias import TextScores
from pretrain.config import Mesh
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.call import attend_local_rows
from pretrain.kernels.attention.row.sharded import attend_with_rows, find_row_obstacle
from pretrain.kernels.attention.row.squares import list_squares
from pretrain.kernels.attention.row.tiles import (
    SMALL_VMEM,
    SQUARES_VMEM,
    Settings,
    choose_square,
)
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.work import count_kernel_bytes
from pretrain.training.flops import count_flops
from tests.draws import draw_examples
from tests.pretrain.kernels.attention import test_row_attention as whole
from tests.pretrain.kernels.attention import test_row_distances as distances
from tests.pretrain.kernels.attention.test_row_attention import compare, draw, make_drop

pytestmark = pytest.mark.slow

B, H, K = whole.B, whole.H, whole.K
SMALL = dict(tile=16, square=24, interpret=True)  # several squares in a short row
LONG = 2200  # more than a row that is computed whole, and no multiple of a square


@draw_examples(2, 4)
@given(
    name=st.sampled_from(whole.MASKS),
    L=st.integers(1, 60),
    M=st.integers(1, 60),
    lengths=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    rate=st.sampled_from((0.0, 0.3)),
)
@example("none", 37, 41, (0, 0), 0.1)  # keys of padding in the last square
@example("padding", 48, 48, (30, 0), 0.1)  # a row of padding
@example("causal, packed", 50, 50, (20, 0), 0.3)
@example("window", 60, 60, (0, 0), 0.0)
@example("window both ways, padding", 60, 20, (5, 20), 0.3)  # queries after the last key
def test_it_is_attend(name, L, M, lengths, rate):
    """In float32, with rows that have no key, and queries that a mask leaves without one."""
    options = dict(
        mask=whole.make_mask(name, L, M, lengths), drop=make_drop(rate) if rate else None
    )
    arrays, do = whole.draw_arrays(L, M, False)
    compare(
        whole.differentiate(partial(attend_local_rows, **SMALL), arrays, do, **options),
        whole.differentiate(attend, arrays, do, **options),
    )


@pytest.mark.more
@settings(max_examples=2, deadline=None)
@given(
    L=st.integers(1, 60),
    memory=st.integers(0, 40),
    window=st.sampled_from((None, 9)),
    rate=st.sampled_from((0.0, 0.3)),
)
@example(48, 48, None, 0.1)  # whole squares
@example(37, 40, 9, 0.0)  # a window that begins after the first square
def test_a_causal_row_of_distances_is_attend(L, memory, window, rate):
    """Transformer-XL's and the Music Transformer's."""
    arrays, mask = distances.draw_causal(L, memory, window)
    options = dict(mask=mask, drop=make_drop(rate) if rate else None)
    compare(
        distances.differentiate(partial(attend_local_rows, **SMALL), arrays, **options),
        distances.differentiate(attend, arrays, **options),
    )


def draw_encoder(L, rows=B):
    """Return (q, k, v, bias) and the mask of XLNet's encoder: both directions, two texts."""
    (*qkv, bias), _ = distances.draw_two_streams(L, 0, 0, rows=rows)
    rng = np.random.default_rng(9)
    ids = jnp.asarray(rng.integers(0, 2, (rows, L)), jnp.int32)
    texts = TextScores(draw(rows, H, L, seed=6), draw(rows, H, L, seed=7), ids, ids)
    return (*qkv, bias.replace(texts=texts)), Mask(jnp.arange(L) < jnp.asarray([[L], [L // 3]]))


@pytest.mark.held_by(1)
@pytest.mark.parametrize("L", [45, 48])
def test_an_encoder_of_distances_is_attend(L):
    arrays, mask = draw_encoder(L)
    options = dict(mask=mask, drop=make_drop(0.1))
    compare(
        distances.differentiate(partial(attend_local_rows, **SMALL), arrays, **options),
        distances.differentiate(attend, arrays, **options),
    )


@pytest.mark.more
def test_errors_in_bfloat16_are_those_of_attend():
    """The mean error of each result against float32 is at most 1.2 times `attend`'s."""
    kernel = partial(attend_local_rows, **SMALL)
    for own, other in distances.measure_errors(kernel, *distances.draw_causal(60, 5)):
        assert own <= 1.2 * other


@pytest.mark.more
def test_a_long_row_on_a_mesh_is_attend():
    """Its squares are those that a chip would have; no option chooses them."""
    mesh = make_mesh(Mesh(2, 1, 2), jax.devices()[:4])
    arrays, mask = distances.draw_causal(LONG, 0)
    options = dict(mask=mask, drop=make_drop(0.1))
    with jax.set_mesh(mesh):
        kernel = distances.differentiate(
            partial(attend_with_rows, mesh=mesh, interpret=True), arrays, **options
        )
    compare(kernel, distances.differentiate(attend, arrays, **options), atol=2e-5)


@pytest.mark.parametrize("reach", [(None, None), (None, 0), (4, 4), (19, 0)], ids=str)
@pytest.mark.parametrize(("L", "M"), [(50, 50), (50, 13), (13, 50)])
def test_squares_are_those_with_a_visible_pair(reach, L, M):
    """Queries without a visible key have one square, in which their output is written."""
    before, after = reach
    own = Settings(1, 16, 1.0, 0.0, reach, 1, tile=16, square=8)
    distance = np.arange(64) - np.arange(64)[:, None]
    visible = (distance <= (64 if after is None else after)) & (
        -distance <= (64 if before is None else before)
    )
    visible[:, M:] = False
    parts = visible.reshape(4, 16, 8, 8).any((1, 3))
    starts = list_squares(L, M, own).T.tolist()
    for i in range(-(-L // 16)):
        keys = [key for query, key in starts if query == 16 * i]
        shown = (8 * np.flatnonzero(parts[i])).tolist()
        assert keys == shown or (not shown and len(keys) == 1)
    assert [query for query, _ in starts] == sorted(query for query, _ in starts)


def test_squares_fit_into_the_memory_of_a_chip():
    """The Music Transformer's and Transformer-XL's rows of 8,192, whose heads have 41 numbers."""
    assert choose_square(64, 8192, 8192, 2, 8192, SQUARES_VMEM) == (256, 1024)
    assert choose_square(48, 8192, 8342, 2, 8342, SQUARES_VMEM) == (256, 1024)
    assert choose_square(128, 8192, 8192, 2, 0, SQUARES_VMEM) == (256, 1024)
    assert choose_square(64, 2304, 2304, 2, 2304, SMALL_VMEM) == (128, 512)
    assert choose_square(64, 16384, 16384, 2, 16384, SQUARES_VMEM) is None


def test_reasons_against_a_long_row():
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    mesh = SimpleNamespace(devices=np.array([SimpleNamespace(device_kind="TPU v5")]), shape=sizes)

    def find_reason(mask=None, bias=None, length=4096, num_keys=None):
        q, k = (
            jax.ShapeDtypeStruct((2, n, H, 64), jnp.bfloat16) for n in (length, num_keys or length)
        )
        return find_row_obstacle(q, k, mask, bias, make_drop(), mesh)

    assert find_reason() is None and find_reason(make_causal_mask(), length=LONG) is None
    pairs = jax.ShapeDtypeStruct((2, 1, 4096, 4096), jnp.bool_)
    assert find_reason(pairs) == (
        "takes a mask of pairs in rows of up to 2048 positions, not of 4096"
    )
    bias = jax.ShapeDtypeStruct((1, H, 4096, 4096), jnp.float32)
    assert find_reason(bias=bias).startswith("takes a bias of pairs in rows of up to 2048")
    assert (
        find_reason(num_keys=256) == "takes rows of up to 2048 positions, not of 4096, for 256 keys"
    )
    assert find_reason(length=512, num_keys=4096) is None
    assert "a head of a row in 48 MiB" in find_reason(length=32768)


@pytest.mark.parametrize(("causal", "num_squares"), [(False, 64), (True, 36)])
def test_a_plan_counts_each_square(causal, num_squares):
    """Of 64 squares of 32 x 32 in a row of 256; seven products of 2 x 32 x 32 x 16 numbers."""
    q = jax.ShapeDtypeStruct((B, 256, H, 16), jnp.bfloat16)

    def compute_gradients(q, k, v):
        def sum_output(q, k, v):
            mask = make_causal_mask() if causal else None
            return attend_local_rows(q, k, v, mask=mask, tile=32, square=32).sum()

        return jax.grad(sum_output, argnums=(0, 1, 2))(q, k, v)

    jaxpr = jax.make_jaxpr(compute_gradients)(q, q, q)
    assert count_flops(jaxpr) == 7 * 2 * B * H * num_squares * 32 * 32 * 16
    # Each array once: q, k, v, o forward; q, k, v, do and three gradients backward; two of a float32
    # for each query, of which one is written first; seeds and squares, of each pass.
    row, scalars = B * H * 256 * 16 * 2, 2 * (16 + 2 * 4 * num_squares)
    assert count_kernel_bytes(jaxpr) == 11 * row + 3 * B * H * 256 * 4 + scalars
