"""The whole-row kernel, interpreted on a CPU, is `attend`: outputs, gradients and dropped weights.

B batch   L length of queries   M length of keys   H heads   K head width
"""

import importlib.util
import json
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.layers import ops
from models.layers.block_sparse import SparsePattern
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import make_attend
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.call import attend_local_rows
from pretrain.kernels.attention.row.dropped_weights import make_keep_tile
from pretrain.kernels.attention.row.sharded import attend_with_rows, find_row_obstacle
from pretrain.kernels.attention.row.tiles import (
    PairTerms,
    Settings,
    choose_blocks,
    list_tiles,
)
from pretrain.kernels.hash_dropout import drop_by_hash, make_keep_mask
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.work import count_kernel_bytes
from pretrain.training.flops import count_flops
from tests.draws import draw_examples

pytestmark = pytest.mark.slow

B, H, K = 2, 2, 16
KEY = jnp.asarray([5, 2**31 + 7], jnp.uint32)
SMALL = dict(tile=16, step=8, interpret=True)  # several tiles in a short row


def make_drop(rate=0.3, broadcast_dims=()):
    return KeyedDropout(KEY, rate, broadcast_dims, drop_by_hash)


def draw(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def draw_arrays(L, M, biased, rows=B, heads=H, width=K):
    """Return (q, k, v, bias) and the gradient of the output, float32."""
    q, do = (draw(rows, L, heads, width, seed=seed) for seed in (1, 2))
    k, v = (draw(rows, M, heads, width, seed=seed) for seed in (3, 4))
    return (q, k, v, draw(1, heads, L, M, seed=5) if biased else None), do


def differentiate(function, arrays, do, **options):
    """Return (output, gradients of q, k, v and the bias)."""

    @jax.jit
    def run(q, k, v, bias):
        out, pull = jax.vjp(
            lambda q, k, v, bias: function(q, k, v, bias=bias, **options), q, k, v, bias
        )
        return out, pull(do.astype(out.dtype))

    return run(*arrays)


def compare(one, other, atol=3e-6):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=atol), one, other)


def make_mask(name, L, M, lengths):
    """Return a mask of B rows of which some have no key at all."""
    valid = jnp.asarray(np.arange(M) < np.asarray(lengths)[:, None])
    ids = [
        jnp.asarray(np.stack([np.arange(n) * 3 // n, np.arange(n) * 2 // n]), jnp.int32)
        for n in (L, M)
    ]
    return {
        "none": None,
        "padding": make_padding_mask(valid),
        "causal": make_causal_mask(),
        "causal, padding": make_causal_mask(valid),
        "causal, packed": make_causal_mask(valid).replace(segment_ids=tuple(ids)),
        "packed": make_padding_mask(valid).replace(segment_ids=tuple(ids)),
        "window": make_causal_mask(window=M // 2 + 1),
        "window both ways, padding": make_padding_mask(valid).replace(window=9),
    }[name]


MASKS = (
    "none", "padding", "causal", "causal, padding", "causal, packed", "packed", "window",
    "window both ways, padding",
)  # fmt: skip


@draw_examples(3, 6)
@given(
    name=st.sampled_from(MASKS),
    L=st.integers(1, 37),
    M=st.integers(1, 37),
    lengths=st.tuples(st.integers(0, 37), st.integers(0, 37)),
    biased=st.booleans(),
    rate=st.sampled_from((0.0, 0.3)),
)
@example("padding", 24, 24, (24, 0), False, 0.1)  # BERT, and a row of padding
@example("padding", 37, 37, (20, 37), True, 0.0)  # T5's encoder; its dropout is of the values
@example("padding", 29, 37, (3, 30), False, 0.0)  # T5's cross-attention
@example("causal, packed", 40, 40, (20, 0), False, 0.1)  # GPT-2 of packed rows
@example("causal", 29, 29, (29, 29), True, 0.1)  # T5 v1.1's decoder
@example("causal", 3, 2, (2, 2), False, 0.0)  # more queries than keys
@example("window both ways, padding", 37, 20, (5, 20), True, 0.3)  # queries after the last key
def test_it_is_attend(name, L, M, lengths, biased, rate):
    """In float32, with rows that have no key, and queries that a mask leaves without one."""
    mask = make_mask(name, L, M, lengths)
    options = dict(mask=mask, drop=make_drop(rate) if rate else None)
    arrays, do = draw_arrays(L, M, biased)
    compare(
        differentiate(partial(attend_local_rows, **SMALL), arrays, do, **options),
        differentiate(attend, arrays, do, **options),
    )


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["padding", "causal"])
def test_errors_in_bfloat16_are_those_of_attend(name):
    """Against float32, whose weights are dropped alike: at most 1.2 times the error of `attend`."""
    L, lengths = 40, (40, 11)
    options = dict(mask=make_mask(name, L, L, lengths), drop=make_drop())
    arrays, do = draw_arrays(L, L, True)
    rounded = [x.astype(jnp.bfloat16) for x in arrays[:3]]
    exact = differentiate(
        attend, [*(x.astype(jnp.float32) for x in rounded), arrays[3]], do, **options
    )
    kernel, plain = (
        differentiate(function, [*rounded, arrays[3]], do, **options)
        for function in (partial(attend_local_rows, **SMALL), attend)
    )

    def measure(result):
        return jax.tree.map(
            lambda x, y: float(jnp.abs(x.astype(jnp.float32) - y).mean()), result, exact
        )

    for one, other in zip(jax.tree.leaves(measure(kernel)), jax.tree.leaves(measure(plain))):
        assert one <= 1.2 * other


@pytest.mark.held_by(1)
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_tile_drops_what_attend_drops(rate):
    """The tile of queries 4 ... 10 and keys 3 ... 15 of the fourth head."""
    whole = make_keep_mask(KEY, rate, (2, 3, 12, 20))
    words = jax.lax.bitcast_convert_type(KEY, jnp.int32)
    tile = make_keep_tile((words[0], words[1]), rate, jnp.int32(3 * 12 + 4), 3, (13, 7))
    np.testing.assert_array_equal(tile, whole[1, 0, 4:11, 3:16].T)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 1, 4), (1, 1, 1)], ids=str)
def test_a_mesh_drops_the_same_weights(sizes):
    """Rows and heads are numbered in the whole batch. Of 2 heads none is divided among 4 devices."""
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    arrays, do = draw_arrays(24, 24, True, rows=4)
    mask = make_padding_mask(jnp.asarray(np.arange(24) < [[24], [7], [0], [20]]))
    with jax.set_mesh(mesh):
        kernel = differentiate(
            partial(attend_with_rows, mesh=mesh, interpret=True),
            arrays,
            do,
            mask=mask,
            drop=make_drop(),
        )
    compare(kernel, differentiate(attend, arrays, do, mask=mask, drop=make_drop()))


def test_a_part_of_the_batch_drops_the_weights_of_its_rows():
    """Rows 1 and 2 of 4, inside of a caller's own `shard_map` for example."""
    (q, k, v, _), _ = draw_arrays(24, 24, False, rows=4)
    whole = attend(q, k, v, drop=make_drop())
    part = attend_local_rows(
        *(x[1:3, :, 1:] for x in (q, k, v)),
        drop=make_drop(),
        first=(jnp.int32(1), 1),
        num_heads=H,
        interpret=True,
    )
    compare(part, whole[1:3, :, 1:])


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["none", "padding", "causal"])
def test_dropout_that_queries_share_is_dropout_of_the_values(name):
    """T5's: the equations drop the weights, with the same draw of every key."""
    mask = make_mask(name, 12, 12, (12, 5))
    arrays, do = draw_arrays(12, 12, True)
    options = dict(mask=mask, drop=make_drop(broadcast_dims=(-2,)))
    compare(*(differentiate(function, arrays, do, **options) for function in (attend, ops.attend)))


@pytest.mark.parametrize("reach", [(None, None), (None, 0), (4, 4), (19, 0)], ids=str)
@pytest.mark.parametrize(("L", "M"), [(50, 50), (50, 13), (13, 50)])
def test_tiles_cover_every_pair_that_a_mask_shows(reach, L, M):
    num_before, num_after = (M if count is None else count for count in reach)
    distance = np.arange(M) - np.arange(L)[:, None]
    visible = (distance <= num_after) & (-distance <= (L if reach[0] is None else num_before))
    own = Settings(1, 16, 1.0, 0.0, reach, 1, tile=16, step=8)
    tiles = list_tiles(L, M, own)
    read = np.zeros((L, M), bool)
    for tile in tiles:
        read[tile.queries, tile.keys] = True
        keys = [tile.keys, *tile.others]
        assert sum(part.stop - part.start for part in keys) == M
        # Without any visible key, a query reads all.
        assert visible[tile.queries].any(1).all() or tile.keys == slice(0, M)
    assert (read | ~visible).all() and [tile.queries.start for tile in tiles] == [*range(0, L, 16)]


def test_programs_fit_into_the_memory_of_a_chip():
    """The sizes that the models have: BERT, T5, GPT-2, and the widest head."""
    plain, biased = PairTerms(), PairTerms(has_bias=True)
    assert choose_blocks(12, 64, 128, 128, 2, plain, (None, None)) == (12, 128)
    assert choose_blocks(12, 64, 512, 512, 2, biased, (None, None)) == (2, 512)
    assert choose_blocks(12, 64, 512, 512, 2, plain, (None, 0)) == (4, 128)
    assert choose_blocks(12, 64, 1024, 1024, 2, plain, (None, 0)) == (1, 128)
    assert choose_blocks(4, 256, 1024, 1024, 2, plain, (None, 0)) == (1, 128)


@pytest.mark.parametrize(("name", "share"), [("none", 1), ("causal, padding", 9 / 16)])
def test_flops_are_those_of_seven_products_and_the_tiles(name, share):
    """Two products forward; backward two for the weights and their gradient, three for q's,
    k and v. A causal row of 1,024 in tiles of 128 reads 1 + 2 + ... + 8 of 64 squares, and rows of
    padding alone count nothing.
    """
    L = 1024
    q = jax.ShapeDtypeStruct((B, L, H, 64), jnp.bfloat16)
    valid = jax.ShapeDtypeStruct((B, L), jnp.bool_)

    def compute_gradients(q, k, v, valid):
        mask = None if name == "none" else make_causal_mask(valid)

        def sum_output(q, k, v):
            return attend_local_rows(q, k, v, mask=mask).sum()

        return jax.grad(sum_output, argnums=(0, 1, 2))(q, k, v)

    found = count_flops(jax.make_jaxpr(compute_gradients)(q, q, q, valid))
    assert found == 7 * 2 * B * L * L * H * 64 * share


def test_bytes_are_each_block_once():
    """A plan counts q, k, v and o once, the bias once for all rows, and 24 bytes of scalars; the
    backward pass reads these and the gradient of o, and writes four gradients.
    """
    L, M, width = 128, 256, 64
    shapes = [(B, L, H, width), (B, M, H, width), (B, M, H, width)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    bias = jax.ShapeDtypeStruct((1, H, L, M), jnp.float32)
    valid = jax.ShapeDtypeStruct((B, M), jnp.bool_)

    def compute_gradients(q, k, v, bias, valid):
        def sum_output(q, k, v, bias):
            return attend_local_rows(q, k, v, mask=make_padding_mask(valid), bias=bias).sum()

        return jax.grad(sum_output, argnums=(0, 1, 2, 3))(q, k, v, bias)

    queries, keys, pairs = B * L * H * width * 2, B * M * H * width * 2, H * L * M * 4
    forward = 2 * queries + 2 * keys + pairs + 24
    backward = 3 * queries + 4 * keys + 2 * pairs + 24
    found = count_kernel_bytes(jax.make_jaxpr(compute_gradients)(*arrays, bias, valid))
    assert found == forward + backward


def find_reason(mask=None, bias=None, drop=None, sizes=(2, 2, 2), L=114, M=512, K=64, **kw):
    rows, dtype = kw.get("B", 8), kw.get("dtype", jnp.bfloat16)
    q, k = (jax.ShapeDtypeStruct((rows, n, 4, K), dtype) for n in (L, M))
    return find_row_obstacle(q, k, mask, bias, drop, make_mesh(Mesh(*sizes)))


def test_reasons_against_it_are_reported():
    def shape_bias(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    drop, causal = make_drop(), make_causal_mask()
    for width in (32, 41, 64, 80, 256):
        assert find_reason(drop=drop, K=width) is None
    assert find_reason(causal, shape_bias(1, 4, 114, 512), drop) is None
    assert find_reason(Mask(window=700), L=1024, M=1024) is None
    assert "blocks of its length" in find_reason(Mask(window=7), L=1024, M=1024)
    assert "not [1, 1, 114, 512]" in find_reason(causal.make_dense(114, 512))
    assert find_reason(jax.ShapeDtypeStruct((8, 1, 114, 512), jnp.bool_)) is None
    assert find_reason(causal.replace(offset=398)) is None
    sparse = causal.replace(pattern=SparsePattern("fixed", 128))
    assert find_reason(sparse) == "has no sparse patterns"
    assert "blocks of its length" in find_reason(make_causal_mask(window=7), L=512)
    assert find_reason(make_causal_mask(window=300), L=512) is None
    assert find_reason(M=2049) is None
    assert "not [8, 4, 114, 512]" in find_reason(bias=shape_bias(8, 4, 114, 512))
    assert "heads of up to 256, not of 272" in find_reason(K=272)
    assert "not in float16" in find_reason(dtype=jnp.float16)
    assert "6 do not divide among 4" in find_reason(B=6)
    assert "all positions of a row on one device" in find_reason(sizes=(1, 2, 2, 2))
    for other in (
        make_drop(1.0),
        make_drop(broadcast_dims=(-2,)),
        drop.replace(drop_fn=ops.drop_values),
    ):
        assert "by the hash of its position" in find_reason(drop=other)
    assert "1024 x 1024 positions and a width of 64 with a bias" in find_reason(
        bias=shape_bias(1, 4, 1024, 1024), L=1024, M=1024
    )


@pytest.mark.parametrize(("kind", "fits"), [("TPU v4", False), ("TPU v5 lite", True)])
def test_a_bias_of_whole_rows_needs_the_memory_of_later_chips(kind, fits):
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    mesh = SimpleNamespace(devices=np.array([SimpleNamespace(device_kind=kind)]), shape=sizes)
    q = jax.ShapeDtypeStruct((2, 1024, 4, 64), jnp.bfloat16)
    bias = jax.ShapeDtypeStruct((1, 4, 1024, 1024), jnp.float32)
    assert (find_row_obstacle(q, q, None, bias, None, mesh) is None) == fits


def test_on_a_tpu_it_follows_splash(monkeypatch):
    """The choice alone: the devices of the mesh do not exist."""
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    device = SimpleNamespace(platform="tpu", device_kind="TPU v4")
    mesh = SimpleNamespace(devices=np.array([device]), shape=sizes)
    heard, calls = [], []
    from pretrain.kernels.attention import choice as attention_kernels

    recorded = [
        kernel._replace(attend=lambda *arrays, **options: calls.append(options) or arrays[2])
        for kernel in attention_kernels.KERNELS["tpu"]
    ]
    monkeypatch.setitem(attention_kernels.KERNELS, "tpu", recorded)
    chosen = make_attend(mesh, lambda *message: heard.append(message))
    q = draw(2, 128, 2, 64, dtype=jnp.bfloat16)
    chosen(q, q, q)
    chosen(q, q, q, drop=make_drop())
    shared = chosen(q, q, q, drop=make_drop(broadcast_dims=(-2,)))
    long = jnp.tile(q[:1], (1, 17, 1, 1))
    chosen(long, long, long, mask=jnp.ones((1, 1, 2176, 2176), bool), drop=make_drop())
    assert heard == [
        ("Splash", None),
        ("whole-row kernel", "Splash cannot drop weights"),
        ("Splash", None),
        (
            "XLA",
            "Splash cannot drop weights, "
            "whole-row kernel takes a mask of pairs in rows of up to 2048 positions, not of 2176",
        ),
    ]
    assert [options["drop"] for options in calls] == [None, make_drop(), None]
    rows_of_zeros = (np.asarray(shared, np.float32) == 0).all(-1)
    assert 0.2 < rows_of_zeros.mean() < 0.4


@pytest.mark.more
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, the TPU's compiler, is not installed (Linux only)",
)
def test_it_compiles_for_each_generation(root, often):
    """Forward and backward, without a copy of an array of all pairs or a temporary as large."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.pretrain.kernels.attention.tpu_row_attention",
            *often([], ["whole"]),
        ],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    programs = json.loads(done.stdout)
    assert len(programs) == often(17, 20)
    for name, found in programs.items():
        # In squares, each stream has its own.
        assert found["kernels"] == (4 if name.startswith("both streams") else 2), name
        assert found["pairs"] == 0, name
