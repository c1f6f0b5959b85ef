"""The attention kernel of a mesh: Splash, whole rows or chunks on TPU, cuDNN on NVIDIA GPUs.

XLA computes what no kernel of the platform supports. The kernels never hold the scores of all pairs
of a batch. Splash and cuDNN cannot apply dropout to the weights in a way that a training step could
repeat; the other kernels drop the weights that XLA would drop. The reason against a kernel is
reported once.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.distributed.ops.attention_parts import attend_in_parts
from pretrain.distributed.ops.chunk_attention.chunk_shards import (
    attend_with_chunks,
    find_chunk_obstacle,
)
from pretrain.distributed.ops.cudnn_attention import attend_with_cudnn, find_cudnn_obstacle
from pretrain.distributed.ops.row_attention.sharded import attend_with_rows, find_row_obstacle
from pretrain.distributed.ops.softmax import attend, move_shared_dropout
from pretrain.distributed.ops.splash_attention import attend_with_splash, find_splash_obstacle
from pretrain.distributed.sharding import AXES


class AttentionKernel(NamedTuple):
    """A kernel that may replace `attend`.

    Attributes:
      name: as it is reported.
      find_obstacle: (q, k, mask, bias, drop, mesh) -> why it cannot be used, or None.
      attend: has the signature of `attend`, and takes the mesh.
    """

    name: str
    find_obstacle: Callable[..., str | None]
    attend: Callable[..., jax.Array]


# {platform: its kernels, the preferred one first}
KERNELS = {
    "tpu": (
        AttentionKernel("Splash", find_splash_obstacle, attend_with_splash),
        AttentionKernel("whole-row kernel", find_row_obstacle, attend_with_rows),
    ),
    "gpu": (AttentionKernel("cuDNN", find_cudnn_obstacle, attend_with_cudnn),),
}
# The same for a mask with chunks.
CHUNK_KERNELS = {
    "tpu": (AttentionKernel("chunk kernel", find_chunk_obstacle, attend_with_chunks),),
}


def list_kernels(platform: str, mask: Mask | jax.Array | None) -> tuple[AttentionKernel, ...]:
    """Return the kernels of a platform for a mask, the preferred one first."""
    if isinstance(mask, Mask) and mask.chunks is not None and platform in CHUNK_KERNELS:
        return CHUNK_KERNELS[platform]
    return KERNELS[platform]


def make_attend(
    mesh: Mesh,
    report_kernel: Callable[[str, str | None], None] = lambda kernel, reason: None,
    on_shard: bool = False,
) -> Callable[..., jax.Array]:
    """Return a function with the signature of `attend` for the devices of a mesh.

    Args:
      mesh: the devices.
      report_kernel: called with (kernel, reason) whenever attention is traced. The reason says why
        the kernels that the platform prefers were not chosen; it is None if the first one was.
      on_shard: for a function inside `jax.shard_map`, which has the rows of one device. The kernels
        get a mesh of one device.
    """
    platform = mesh.devices.flat[0].platform
    if platform not in KERNELS:
        report_kernel("XLA", None)
        return attend_in_parts if platform == "cpu" and mesh.size == 1 else attend
    options: dict[str, Any] = {"mesh": mesh}
    if on_shard:
        options = {"mesh": Mesh(mesh.devices[:1, :1, :1, :1], AXES), "on_shard": True}

    if platform == "gpu":
        options["calls"] = itertools.count()

    def attend_by_kernel(
        q_BLHK: jax.Array,
        k_BMHK: jax.Array,
        v_BMHK: jax.Array,
        *,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | DistanceBias | None = None,
        scale: float | None = None,
        drop: KeyedDropout | None = None,
    ) -> jax.Array:
        v_BMHK, drop = move_shared_dropout(q_BLHK, v_BMHK, mask, bias, drop)
        reasons = []
        for kernel in list_kernels(platform, mask):
            reason = kernel.find_obstacle(q_BLHK, k_BMHK, mask, bias, drop, options["mesh"])
            if reason is None:
                report_kernel(kernel.name, ", ".join(reasons) or None)
                return kernel.attend(
                    q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, drop=drop, **options
                )
            reasons.append(f"{kernel.name} {reason}")
        report_kernel("XLA", ", ".join(reasons))
        return attend(q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, drop=drop)

    return attend_by_kernel
