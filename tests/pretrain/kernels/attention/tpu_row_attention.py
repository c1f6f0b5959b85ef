"""Compile the whole-row and the chunk kernel for TPUs that are not attached, and print JSON.

The argument `whole` adds the calls of BOARD. A process of its own, because libtpu reads its settings once.
"""

import json
import sys

from pretrain.plan.topology import configure_environment, make_tpu_machine

configure_environment()

import jax  # noqa: E402  the environment comes first
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from models.layers.dropout import KeyedDropout  # noqa: E402
from models.layers.long_rows.key_chunks import KeyChunks  # noqa: E402
from models.layers.masks import Mask  # noqa: E402
from models.layers.relative.distance_bias import DistanceBias, TextScores  # noqa: E402
from pretrain.config import Mesh  # noqa: E402
from pretrain.kernels.attention.choice import make_attend  # noqa: E402
from pretrain.kernels.hash_dropout import drop_by_hash  # noqa: E402
from pretrain.mesh.sharding import make_mesh  # noqa: E402

# {name: (topology, rows, L, M, heads, head width, causal, has padding, has a bias, rate)}
CALLS = {
    "BERT on v4": ("v4:2x2x1", 4, 512, 512, 4, 64, False, True, False, 0.1),
    "T5's encoder on v4": ("v4:2x2x1", 2, 512, 512, 4, 64, False, True, True, 0.0),
    "T5's decoder on v5e": ("v5e:2x2", 2, 114, 114, 4, 64, True, False, True, 0.1),
    "GPT-2 on v5p": ("v5p:2x2x1", 2, 1024, 1024, 2, 64, True, False, False, 0.1),
    "a bias of whole rows on v6e": ("v6e:2x2", 2, 1024, 1024, 2, 64, False, True, True, 0.1),
    "T5's cross-attention on v6e": ("v6e:2x2", 2, 114, 512, 4, 64, False, True, False, 0.0),
    "a long row in squares on v4": ("v4:2x2x1", 1, 3000, 3000, 2, 64, False, True, False, 0.1),
    "a wide head of a long row on v6e": ("v6e:2x2", 1, 8192, 8192, 1, 128, True, True, False, 0.1),
}


# {name: (topology, rows, L, predicted positions, memory, heads, head width)}; causal without the
# predicted ones.
DISTANCE_CALLS = {
    "XLNet on v5e": ("v5e:2x2", 2, 512, 85, 0, 4, 64),
    "both streams of a long row on v5e": ("v5e:2x2", 1, 8192, 1365, 0, 2, 64),
    "both streams of a long row on v5p": ("v5p:2x2x1", 1, 8192, 1365, 384, 1, 64),
    "both streams of a long row on v6e": ("v6e:2x2", 2, 2304, 384, 0, 1, 128),
    "both streams of a long row on v4": ("v4:2x2x1", 1, 2304, 384, 0, 2, 64),
    "Transformer-XL on v4": ("v4:2x2x1", 2, 150, 0, 150, 10, 41),
    "a long row of Transformer-XL on v5p": ("v5p:2x2x1", 1, 8192, 0, 150, 2, 41),
    "a long row of the Music Transformer on v5e": ("v5e:2x2", 1, 8192, 0, 0, 2, 64),
}

# {name: (topology, rows, L, heads, head width, chunk, rounds, rate, dtype)}; 0 rounds: in the row's
# order
CHUNK_CALLS = {
    "hashed chunks of the Reformer on v4": ("v4:2x2x1", 1, 4096, 2, 128, 256, 4, 0.1, jnp.bfloat16),
    "local chunks of the Reformer on v5e": ("v5e:2x2", 1, 8192, 2, 128, 128, 0, 0.2, jnp.bfloat16),
    "chunks of narrow heads on v6e": ("v6e:2x2", 1, 1024, 2, 64, 128, 1, 0.0, jnp.bfloat16),
    "chunks of heads of 192 on v4": ("v4:2x2x1", 1, 1024, 1, 192, 128, 2, 0.1, jnp.float32),
}

# Calls that take 15 s or more, for the whole board. Both streams in squares are compiled for a v4
# and a v5p, and the kernels give a v5e, a v5p and a v6e the same memory; hashed chunks are compiled
# for a v4 with wider heads.
BOARD = frozenset(
    {"both streams of a long row on v5e", "both streams of a long row on v6e", "hashed chunks of the Reformer on v4"},
)  # fmt: skip


def make_machine(topology):
    """Return a mesh of one chip, and a function for shapes on it."""
    mesh = make_mesh(Mesh(1), make_tpu_machine(topology).devices[:1])
    place = NamedSharding(mesh, P())
    return mesh, lambda *sizes, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(
        sizes, dtype, sharding=place
    )


def compile_gradient(topology, B, L, M, H, K, causal, padded, biased, rate):
    """Return how many kernels a program has, and how many other arrays of all pairs."""
    mesh, shape = make_machine(topology)

    def compute(q, k, v, bias, valid, key):
        attend = make_attend(mesh)
        return attend(
            q,
            k,
            v,
            mask=Mask(valid, causal=causal),
            bias=bias,
            drop=KeyedDropout(key, rate, (), drop_by_hash) if rate else None,
        )

    arguments = (
        shape(B, L, H, K),
        *(shape(B, M, H, K) for _ in range(2)),
        shape(1, H, L, M, dtype=jnp.float32) if biased else None,
        shape(B, M, dtype=jnp.bool_) if padded else None,
        shape(2, dtype=jnp.uint32),
    )

    return count_kernels(mesh, compute, arguments, 4, (B, H, L, M))


def compile_distances(topology, B, L, P, memory, H, K):
    """Return the same for a bias of distances, with P for a mask of ranks."""
    mesh, shape = make_machine(topology)
    X, N, R = L + P, memory + L, memory + (2 * L - 1 if P else L)
    ids, ranks = ([shape(B, n, dtype=jnp.int32) for n in (X, N)] for _ in range(2))
    scores = (shape(B, H, X, dtype=jnp.float32) for _ in range(2))

    def compute(q, k, v, distance_q, r, same, other, query_ids, key_ids, positions, ranks, key):
        mask = Mask(segment_ids=(query_ids, key_ids), causal=True, offset=memory)
        bias = DistanceBias(distance_q, r, num_keys=N, scale=K**-0.5)
        if P:
            mask = Mask(ranks=tuple(ranks), offset=memory)
            texts = TextScores(same, other, query_ids, key_ids)
            bias = bias.replace(position_BP=positions, texts=texts)
        drop = KeyedDropout(key, 0.1, (), drop_by_hash)
        return make_attend(mesh)(q, k, v, mask=mask, bias=bias, drop=drop)

    arguments = (
        *(shape(B, n, H, K) for n in (X, N, N, X)),
        shape(R, H, K),
        *scores,
        *ids,
        shape(B, P, dtype=jnp.int32),
        ranks,
        shape(2, dtype=jnp.uint32),
    )
    return count_kernels(mesh, compute, arguments, 7, (B, H, X, N))


def compile_chunks(topology, B, L, H, K, chunk, rounds, rate, dtype):
    """Return the same for chunks of sorted keys in a row of texts."""
    mesh, shape = make_machine(topology)

    def compute(q, k, v, buckets, segment_ids, key):
        chunks = KeyChunks(chunk, chunk, buckets, avoids_self=buckets is not None)
        mask = Mask(causal=True, segment_ids=(segment_ids, segment_ids), chunks=chunks)
        drop = KeyedDropout(key, rate, (), drop_by_hash) if rate else None
        return make_attend(mesh)(q, k, v, mask=mask, drop=drop)

    arguments = (
        *(shape(B, L, H, K, dtype=dtype) for _ in range(3)),
        shape(B, H, rounds, L, dtype=jnp.int32) if rounds else None,
        shape(B, L, dtype=jnp.int32),
        shape(2, dtype=jnp.uint32),
    )
    num_chunks = max(rounds, 1) * L // chunk
    return count_kernels(mesh, compute, arguments, 3, (B, H, num_chunks, chunk, 2 * chunk))


def count_kernels(mesh, compute, arguments, num_floats, pairs):
    """Return the kernels of a function and of its gradient, and the arrays of the shape `pairs`."""

    def differentiate(*arguments):
        floats, others = arguments[:num_floats], arguments[num_floats:]
        out, pull = jax.vjp(lambda *floats: compute(*floats, *others), *floats)
        return out, pull(out)

    with jax.set_mesh(mesh):
        text = jax.jit(differentiate).lower(*arguments).compile().as_text()
    return {
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "pairs": text.count(f"[{','.join(map(str, pairs))}]"),
    }


if __name__ == "__main__":
    tables = (CALLS, compile_gradient), (DISTANCE_CALLS, compile_distances)
    found = {
        name: compile_call(*call)
        for table, compile_call in (*tables, (CHUNK_CALLS, compile_chunks))
        for name, call in table.items()
        if name not in BOARD or "whole" in sys.argv[1:]
    }
    json.dump(found, sys.stdout)
