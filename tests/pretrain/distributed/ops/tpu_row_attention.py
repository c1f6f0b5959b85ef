"""Compile the whole-row kernel for TPUs that are not attached, and print what is found as JSON.

A process of its own, because libtpu reads its settings once.
"""

import json
import re
import sys

from pretrain.plan.topology import configure_environment, make_tpu_machine

configure_environment()

import jax  # noqa: E402  the environment comes first
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from models.layers.dropout import KeyedDropout  # noqa: E402
from models.layers.masks import Mask  # noqa: E402
from pretrain.config import Mesh  # noqa: E402
from pretrain.distributed.ops.attention_kernels import make_attend  # noqa: E402
from pretrain.distributed.ops.hash_dropout import drop_by_hash  # noqa: E402
from pretrain.distributed.sharding import make_mesh  # noqa: E402

# {name: (topology, rows, L, M, heads, head width, causal, has padding, has a bias, rate)}
CALLS = {
    "BERT on v4": ("v4:2x2x1", 4, 512, 512, 4, 64, False, True, False, 0.1),
    "T5's encoder on v4": ("v4:2x2x1", 2, 512, 512, 4, 64, False, True, True, 0.0),
    "T5's decoder on v5e": ("v5e:2x2", 2, 114, 114, 4, 64, True, False, True, 0.1),
    "GPT-2 on v5p": ("v5p:2x2x1", 2, 1024, 1024, 2, 64, True, False, False, 0.1),
    "a bias of whole rows on v6e": ("v6e:2x2", 2, 1024, 1024, 2, 64, False, True, True, 0.1),
    "T5's cross-attention on v6e": ("v6e:2x2", 2, 114, 512, 4, 64, False, True, False, 0.0),
}


def compile_gradient(topology, B, L, M, H, K, causal, padded, biased, rate):
    """Return how many kernels a program has, and how many other arrays of all pairs."""
    mesh = make_mesh(Mesh(1), make_tpu_machine(topology).devices[:1])
    place = NamedSharding(mesh, P())

    def shape(*sizes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=place)

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

    def differentiate(*arguments):
        out, pull = jax.vjp(lambda *floats: compute(*floats, *arguments[4:]), *arguments[:4])
        return out, pull(out)

    with jax.set_mesh(mesh):
        text = jax.jit(differentiate).lower(*arguments).compile().as_text()
    return {
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "pairs": len(re.findall(rf"\[{B},{H},{L},{M}\]", text)),
    }


if __name__ == "__main__":
    json.dump({name: compile_gradient(*call) for name, call in CALLS.items()}, sys.stdout)
