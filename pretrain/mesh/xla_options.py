"""XLA compiler options by platform, each with the measurement that justifies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.sharding import Mesh

COMPILER_OPTIONS = {
    "cpu": {
        # By default XLA copies both moments of each parameter first, since it does not see that the
        # readers of the old moments may run before the writes of the new ones. With this option and
        # `transforms.clip_by_global_norm`, the step of GPT-2 takes 804 MiB in addition to its
        # state, not 1,121 (4 rows of 128, compiled). The result is the same.
        "xla_cpu_copy_insertion_use_region_analysis": True,
        # By default optimisation barriers are removed before XLA eliminates common subexpressions
        # for the second time: it would then save everything and recompute nothing
        # (pretrain/kernels/rematerialization.py). With the barriers the step of BERT-base
        # takes 647 MiB in addition to its state, not 1,071 (8 rows of 128, compiled).
        "xla_disable_hlo_passes": "cse_barrier_expander",
    },
    "gpu": {
        # By default XLA and cuDNN add with atomics, in any order, and XLA chooses kernels by their
        # measured times: of the 30 arrays of BERT-base, 26 differed between two runs of three steps
        # on an H100, and a run that is killed would end with other bits. The gathers of
        # pretrain/kernels/gathers.py save most of its price.
        "xla_gpu_deterministic_ops": True,
    },
    "tpu": {
        # By default a matmul with a matrix that is sharded over `fsdp` becomes a ring of partial
        # matmuls whose sums pass through HBM at each stop. With the matrix gathered first, four
        # layers of BERT-large on v5p:2x2x4 (compiled, not run) need 10 ms of HBM traffic per step,
        # not 26.
        "xla_jf_spmd_threshold_for_windowed_einsum_mib": 1_000_000,
    },
}


def get_compiler_options(mesh: Mesh) -> dict[str, Any] | None:
    """Return the `compiler_options` of `jax.jit` for the devices of a mesh, or None."""
    return COMPILER_OPTIONS.get(mesh.devices.flat[0].platform)
