"""Joining the other processes of a pod, where there are any, before JAX touches a device."""

import os


def start():
    """Join the processes that the environment speaks of; alone, do nothing.

    A TPU pod slice is recognised by its runtime's TPU_WORKER_HOSTNAMES, or by CLOZE_CLUSTER=tpu (`pod run` sets it), and JAX finds the
    others by itself. Elsewhere JAX_COORDINATOR_ADDRESS (host:port),
    JAX_NUM_PROCESSES and JAX_PROCESS_ID name the processes. Raises ValueError where only some of the three are set.
    """
    import jax

    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    given = [os.environ.get(name) for name in names]
    if all(given):
        jax.distributed.initialize(given[0], int(given[1]), int(given[2]))
    elif any(given):
        missing = ", ".join(name for name, value in zip(names, given) if not value)
        raise ValueError(f"a run of several processes needs {', '.join(names)}; missing: {missing}")
    elif os.environ.get("CLOZE_CLUSTER") == "tpu" or len(os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")) > 1:
        jax.distributed.initialize()
