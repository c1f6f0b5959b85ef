"""The whole-row kernel computes a bias of distances itself: XLNet's and Transformer-XL's attention.

B batch   L length of queries   N keys   R distances   H heads   K head width
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias, TextScores
from pretrain.config import Mesh
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.call import attend_local_rows
from pretrain.kernels.attention.row.sharded import attend_with_rows
from pretrain.mesh.sharding import make_mesh
from tests.pretrain.kernels.attention.test_row_attention import compare, draw, make_drop

pytestmark = pytest.mark.slow

B, H, K = 2, 2, 12
SMALL = dict(tile=16, step=8, interpret=True)  # several tiles in a short row


def draw_causal(L, memory, window=None, rows=B):
    """Return (q, k, v, bias) and the mask of Transformer-XL: a memory, documents of a row."""
    N = memory + L
    q, distance_q = (draw(rows, L, H, K, seed=seed) for seed in (1, 2))
    k, v = (draw(rows, N, H, K, seed=seed) for seed in (3, 4))
    bias = DistanceBias(distance_q, draw(N, H, K, seed=5), num_keys=N, scale=0.3)
    ids = jnp.asarray(np.arange(N) * 3 // N + np.arange(rows)[:, None], jnp.int32)
    return (q, k, v, bias), Mask(
        segment_ids=(ids[:, memory:], ids), causal=True, window=window, offset=memory
    )


def draw_two_streams(L, memory, P, texts=True, rows=B):
    """Return (q, k, v, bias) and the mask of XLNet: both streams, both directions, two texts."""
    X, N = L + P, memory + L
    rng = np.random.default_rng(0)
    q, distance_q = (draw(rows, X, H, K, seed=seed) for seed in (1, 2))
    k, v = (draw(rows, N, H, K, seed=seed) for seed in (3, 4))
    bias = DistanceBias(
        distance_q,
        draw(N + L - 1, H, K, seed=5),
        num_keys=N,
        scale=K**-0.5,
        position_BP=jnp.asarray(rng.integers(0, L, (rows, P)), jnp.int32) if P else None,
        texts=TextScores(
            draw(rows, H, X, seed=6),
            draw(rows, H, X, seed=7),
            *(jnp.asarray(rng.integers(0, 2, (rows, n)), jnp.int32) for n in (X, N)),
        )
        if texts
        else None,
    )
    return (q, k, v, bias), jnp.asarray(rng.random((rows, 1, X, N)) < 0.5)


def differentiate(function, arrays, **options):
    """Return the output, and the gradients of all arrays of floats."""
    floats, structure = jax.tree.flatten(arrays)
    is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in floats]

    @jax.jit
    def run(leaves):
        def compute(*given):
            given = iter(given)
            whole = [next(given) if real else x for x, real in zip(leaves, is_float)]
            q, k, v, bias = jax.tree.unflatten(structure, whole)
            return function(q, k, v, bias=bias, **options)

        out, pull = jax.vjp(compute, *(x for x, real in zip(leaves, is_float) if real))
        return out, pull(draw(*out.shape, seed=8, dtype=out.dtype))

    return run(floats)


@settings(max_examples=2, deadline=None)
@given(
    L=st.integers(1, 40),
    memory=st.integers(0, 40),
    window=st.sampled_from((None, 9)),
    rate=st.sampled_from((0.0, 0.3)),
)
@example(32, 32, 9, 0.1)  # tiles and memory of whole steps; keys of each tile begin elsewhere
@example(37, 0, None, 0.0)
def test_a_causal_row_is_attend(L, memory, window, rate):
    """Transformer-XL's and the Music Transformer's, in float32."""
    arrays, mask = draw_causal(L, memory, window)
    options = dict(mask=mask, drop=make_drop(rate) if rate else None)
    compare(
        differentiate(partial(attend_local_rows, **SMALL), arrays, **options),
        differentiate(attend, arrays, **options),
    )


@pytest.mark.more
@settings(max_examples=2, deadline=None)
@given(
    L=st.integers(1, 40),
    memory=st.integers(0, 20),
    P=st.integers(0, 20),
    texts=st.booleans(),
    rate=st.sampled_from((0.0, 0.3)),
)
@example(32, 0, 9, True, 0.1)  # the query stream begins with a tile
@example(37, 5, 9, True, 0.0)  # and within one
@example(40, 0, 0, False, 0.3)  # an encoder
def test_two_streams_are_attend(L, memory, P, texts, rate):
    """XLNet's, in float32, with queries that may read nothing."""
    arrays, mask = draw_two_streams(L, memory, P, texts)
    mask = mask.at[0, :, 0].set(False)
    options = dict(mask=mask, drop=make_drop(rate) if rate else None)
    compare(
        differentiate(partial(attend_local_rows, **SMALL), arrays, **options),
        differentiate(attend, arrays, **options),
    )


def measure_errors(function, arrays, mask):
    """Return (mean error in bfloat16 of a function, of `attend`) of each result, against float32.

    The texts' term is float32 in all.
    """
    *qkv, bias = arrays
    options = dict(mask=mask, drop=make_drop())

    def cast(arrays, dtype):
        q, k, v, distance_q, r = (x.astype(dtype) for x in arrays)
        return q, k, v, bias.replace(q_BLHK=distance_q, r_RHK=r)

    rounded = cast((*qkv, bias.q_BLHK, bias.r_RHK), jnp.bfloat16)
    exact = cast((*rounded[:3], rounded[3].q_BLHK, rounded[3].r_RHK), jnp.float32)
    results = (
        differentiate(function, rounded, **options),
        differentiate(attend, rounded, **options),
        differentiate(attend, exact, **options),
    )
    for own, other, best in zip(*map(jax.tree.leaves, results), strict=True):
        yield tuple(float(jnp.abs(x.astype(jnp.float32) - best).mean()) for x in (own, other))


@pytest.mark.more
@pytest.mark.parametrize(
    "draw_arrays", [draw_causal, partial(draw_two_streams, P=9)], ids=["causal", "two streams"]
)
def test_errors_in_bfloat16_are_below_those_of_attend(draw_arrays):
    for own, other in measure_errors(partial(attend_local_rows, **SMALL), *draw_arrays(37, 5)):
        assert own <= other


@pytest.mark.more
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 1, 4)], ids=str)
def test_a_mesh_computes_the_same(sizes):
    """The gradient of the distances sums the rows of all devices."""
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    arrays, mask = draw_two_streams(24, 0, 5, rows=4)
    options = dict(mask=mask, drop=make_drop())
    with jax.set_mesh(mesh):
        kernel = differentiate(
            partial(attend_with_rows, mesh=mesh, interpret=True), arrays, **options
        )
    compare(kernel, differentiate(attend, arrays, **options))
