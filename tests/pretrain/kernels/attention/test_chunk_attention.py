"""The chunk kernel, interpreted on a CPU, is `attend` of a mask with chunks.

B batch   L length   H heads   K head width   R rounds   N chunks   C positions of a chunk
"""

import dataclasses
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from models.layers.dropout import KeyedDropout
from models.layers.long_rows.key_chunks import KeyChunks, attend_in_chunks, average_chunks
from models.layers.masks import Mask
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import make_attend
from pretrain.kernels.attention.chunk.chunk_call import average_local_chunks, choose_chunks
from pretrain.kernels.attention.chunk.chunk_shards import (
    attend_with_chunks,
    find_chunk_obstacle,
)
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.hash_dropout import drop_on_shard
from pretrain.mesh.sharding import BATCH, make_mesh
from pretrain.plan.work import count_kernel_bytes
from pretrain.training.flops import count_flops
from tests.draws import draw_examples
from tests.pretrain.kernels.attention.test_row_attention import compare, draw, make_drop

pytestmark = pytest.mark.slow

B, H, K = 2, 2, 8


def make_chunks(hashed, L, *, size=4, multiple=8, rows=B, rounds=2):
    """Return chunks in the order of the row, or of drawn buckets."""
    if not hashed:
        return KeyChunks(size, multiple)
    buckets = np.random.default_rng(7).integers(0, 4, (rows, H, rounds, L))
    return KeyChunks(size, multiple, jnp.asarray(buckets, jnp.int32), avoids_self=True)


def make_segments(L, rows=B):
    """Return ids of texts, two or more in each row."""
    ids = np.sort(np.random.default_rng(8).integers(0, 3, (rows, L)), axis=1)
    return jnp.asarray(ids, jnp.int32)


def make_mask(chunks, ids=None):
    return Mask(causal=True, segment_ids=None if ids is None else (ids, ids), chunks=chunks)


def draw_arrays(L, rows=B, dtype=jnp.float32):
    """Return (q, k, v) and the gradient of the output."""
    return [draw(rows, L, H, K, seed=seed, dtype=dtype) for seed in range(4)]


def differentiate(function, arrays, **options):
    """Return (output, gradients of q, k and v)."""

    @jax.jit
    def run(q, k, v, do, options):
        out, pull = jax.vjp(lambda *qkv: function(*qkv, **options), q, k, v)
        return out, pull(do.astype(out.dtype))

    return run(*arrays, options)


@draw_examples(2, 4)
@given(
    hashed=st.booleans(),
    packed=st.booleans(),
    L=st.integers(5, 40),
    chunks_per_program=st.sampled_from((1, 2, None)),
    rate=st.sampled_from((0.0, 0.3)),
)
@example(False, False, 32, 2, 0.3)  # local attention, whole chunks
@example(False, True, 30, 1, 0.0)  # packed rows with padding
@example(True, False, 32, None, 0.0)  # hashed, all chunks in one program
@example(True, True, 30, 2, 0.3)
@example(True, False, 5, 1, 0.0)  # a token that only sees itself, in a chunk of each round
def test_it_is_attend(hashed, packed, L, chunks_per_program, rate):
    """In float32, with padding, texts, rounds of hashing and queries that only see themselves."""
    options = dict(
        chunks=make_chunks(hashed, L),
        segment_ids=(make_segments(L),) * 2 if packed else None,
        drop=make_drop(rate) if rate else None,
    )
    kernel = partial(average_local_chunks, chunks_per_program=chunks_per_program, interpret=True)
    arrays = draw_arrays(L)
    compare(
        differentiate(partial(attend_in_chunks, average=kernel), arrays, **options),
        differentiate(attend_in_chunks, arrays, **options),
    )


def test_the_totals_have_a_gradient():
    """What weighs the rounds is differentiated too: here alone, without the outputs."""
    N, C = 6, 4
    q, k, v, weights = (draw(B, H, N, C, K, seed=seed) for seed in range(4))
    positions = jnp.asarray(np.random.default_rng(1).permutation(N * C).reshape(1, 1, N, C))
    positions = jnp.broadcast_to(positions, (B, H, N, C))

    def compute_gradient(average, **more):
        def sum_totals(q, k):
            totals_BHNC = average(
                *(q, k, v, positions, None), scale=0.5, avoids_self=True, drop=None, **more
            )[1]
            return (totals_BHNC * weights[..., 0]).sum()

        return jax.jit(jax.grad(sum_totals, argnums=(0, 1)))(q, k)

    found = compute_gradient(average_local_chunks, interpret=True)
    compare(found, compute_gradient(average_chunks))
    assert np.abs(found[0]).max() > 0.1


@pytest.mark.more
@pytest.mark.parametrize("hashed", [False, True])
def test_errors_in_bfloat16_are_those_of_attend(hashed):
    """The mean error of each result against float32 is at most 1.2 times `attend`'s."""
    options = dict(chunks=make_chunks(hashed, 64), drop=make_drop(0.1))
    arrays = draw_arrays(64, dtype=jnp.bfloat16)
    exact = differentiate(attend_in_chunks, [x.astype(jnp.float32) for x in arrays], **options)
    kernel = partial(average_local_chunks, chunks_per_program=4, interpret=True)
    own, other = (
        jax.tree.map(
            lambda x, y: np.abs(np.asarray(x, np.float32) - y).mean(),
            differentiate(partial(attend_in_chunks, average=average), arrays, **options),
            exact,
        )
        for average in (kernel, average_chunks)
    )
    for one, two in zip(jax.tree.leaves(own), jax.tree.leaves(other), strict=True):
        assert one <= 1.2 * two


@pytest.mark.more
@pytest.mark.parametrize("hashed", [False, True])
def test_on_a_mesh_it_is_attend(hashed):
    """Each device drops the weights of its own rows and heads."""
    arrays = draw_arrays(30, rows=4)
    mask = make_mask(make_chunks(hashed, 30, rows=4), make_segments(30, rows=4))
    options = dict(mask=mask, drop=make_drop())
    mesh = make_mesh(Mesh(2, 1, 2), jax.devices()[:4])
    with jax.set_mesh(mesh):
        kernel = partial(attend_with_chunks, mesh=mesh, interpret=True)
        found = differentiate(kernel, arrays, **options)
    compare(found, differentiate(attend, arrays, **options))


def test_on_a_shard_it_is_attend():
    """Inside `jax.shard_map`, where gradients are taken."""
    arrays = draw_arrays(24, rows=8)
    chunks = make_chunks(True, 24, rows=8)
    one, drop = make_mesh(Mesh(1), jax.devices()[:1]), make_drop()

    def compute_on_shard(arrays, buckets, key):
        part = KeyedDropout(key, drop.rate, (), drop_on_shard)
        mask = make_mask(chunks.replace(buckets_BHRL=buckets))
        kernel = partial(attend_with_chunks, mesh=one, on_shard=True, interpret=True)
        return differentiate(kernel, arrays, mask=mask, drop=part)

    found = jax.jit(
        jax.shard_map(
            compute_on_shard,
            mesh=make_mesh(Mesh(2, 4)),
            in_specs=(BATCH, BATCH, P()),
            out_specs=BATCH,
            check_vma=False,
        )
    )(arrays, chunks.buckets_BHRL, drop.key)
    compare(found, differentiate(attend, arrays, mask=make_mask(chunks), drop=drop))


def make_machine(platform="tpu", **shape):
    """Return what stands for a mesh of devices."""
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1) | shape
    device = SimpleNamespace(platform=platform, device_kind="TPU v5")
    return SimpleNamespace(devices=np.array([device]), shape=sizes, size=1)


def test_reasons_against_it():
    def find_reason(size=256, drop=None, bias=None, dtype=jnp.bfloat16, width=128, **shape):
        q = jax.ShapeDtypeStruct((2, 8192, H, width), dtype)
        mask = make_mask(KeyChunks(size, size))
        return find_chunk_obstacle(q, q, mask, bias, drop, make_machine(**shape))

    assert find_reason() is None and find_reason(drop=make_drop()) is None
    assert find_reason(size=64) == "takes chunks of a multiple of 128 positions, not of 64"
    assert find_reason(sequence=2) == "needs all positions of a row on one device"
    assert find_reason(data=4) == "needs rows on every device; 2 do not divide among 4"
    assert find_reason(dtype=jnp.float16).startswith("computes in bfloat16 or float32")
    assert find_reason(bias=jnp.zeros(())) == "takes no decoding step and no bias"
    assert find_reason(size=1024).startswith("holds no scores of chunks of 1024")
    random_bits = dataclasses.replace(make_drop(), drop_fn=max)
    assert find_reason(drop=random_bits).startswith("drops each weight by the hash")


def test_a_program_fits_into_the_memory_of_a_v4():
    assert choose_chunks(256, 256, 128, 2) == 4 and choose_chunks(512, 128, 128, 2) == 8
    assert choose_chunks(6, 256, 128, 2) == 3  # a divisor
    assert choose_chunks(64, 256, 256, 4) == 2 and choose_chunks(64, 1024, 64, 2) is None
    # Narrow heads take as much as wide ones; libtpu needed 19.2 MiB for the first of these with
    # two chunks, 18.1 for the second with eight.
    assert choose_chunks(64, 512, 64, 4) is None and choose_chunks(64, 128, 192, 4) == 4


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_masks_with_chunks_have_kernels_of_their_own(platform):
    """On a GPU there is none, and XLA computes them."""
    reports = []
    mesh = make_machine(platform)
    attend_on = make_attend(mesh, lambda *words: reports.append(words))
    q = jax.ShapeDtypeStruct((2, 512, H, 64), jnp.bfloat16)

    def run(q):
        return attend_on(q, q, q, mask=make_mask(KeyChunks(64, 64)), drop=make_drop())

    jax.eval_shape(run, q)
    reason = {
        "tpu": "chunk kernel takes chunks of a multiple of 128 positions, not of 64",
        "gpu": "cuDNN takes no chunks of sorted keys",
    }[platform]
    assert reports == [("XLA", reason)]


def test_a_plan_counts_what_it_computes_and_moves():
    """Local chunks of 32 in a row of 256: 8 of them, each of 32 queries and 64 keys."""
    L, C, n = 256, 32, 4
    q = jax.ShapeDtypeStruct((B, L, H, 16), jnp.bfloat16)

    def compute_gradients(q, k, v):
        def sum_output(q, k, v):
            average = partial(average_local_chunks, chunks_per_program=n)
            return attend_in_chunks(q, k, v, chunks=KeyChunks(C, C), average=average).sum()

        return jax.grad(sum_output, argnums=(0, 1, 2))(q, k, v)

    jaxpr = jax.make_jaxpr(compute_gradients)(q, q, q)
    assert count_flops(jaxpr) == 7 * 2 * B * H * L * 2 * C * 16
    # Each array once: q, k, v, o forward; q, k, v, do and three gradients backward; keys and
    # values of the chunk before, in both passes, and float32 gradients of these; three of a float32
    # for each query; seeds.
    row, before = B * H * L * 16 * 2, B * H * (L // n) * 16 * 2
    assert count_kernel_bytes(jaxpr) == 11 * row + 4 * before + 2 * 2 * before + (
        3 * B * H * L * 4 + 2 * 16
    )
