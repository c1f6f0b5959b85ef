"""What XLA is told besides its defaults, by platform: one table, each entry with the measurement that it is there for."""

OPTIONS = {
    "cpu": {
        # By default both moments of each parameter are copied first, for XLA does not see that what reads the old ones may come before what writes new ones over
        # them. Without, and with `optim.clipped`, GPT-2's step takes 804 MiB beside its state, not 1,121 (4 rows of 128, compiled); what it computes stays.
        "xla_cpu_copy_insertion_use_region_analysis": True,
        # By default optimisation barriers are gone before XLA looks a second time for what is computed twice: nothing would be computed again, but all of it
        # kept (pretrain/distributed/ops/recompute.py). With them BERT-base's step takes 647 MiB beside its state, not 1,071 (8 rows of 128, compiled).
        "xla_disable_hlo_passes": "cse_barrier_expander",
    },
    "tpu": {
        # A product with a matrix that is split over `fsdp` becomes, by default, a ring of partial products whose sums pass through HBM at
        # each stop. Gathered first, four layers of BERT-large on v5p:2x2x4 (compiled, not run) need 10 ms of HBM a step, not 26 (LOG.md).
        "xla_jf_spmd_threshold_for_windowed_einsum_mib": 1_000_000,
    },
}


def compiler_options(mesh):
    """The `compiler_options` of `jax.jit` for the devices of a mesh, or None."""
    return OPTIONS.get(mesh.devices.flat[0].platform)
