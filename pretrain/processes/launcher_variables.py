"""Read the environment variables of launchers: numbers, addresses, hosts and GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")

Environment = Mapping[str, str]


def parse_number(environ: Environment, name: str, default: int | None = None) -> int:
    """Return the number in a variable, or `default` if it is unset or empty.

    Raises:
      ValueError: the variable is no number of 0 or more, or is unset and has no default.
    """
    value = environ.get(name) or str(default)
    if not value.isdecimal():
        raise ValueError(f"{name}={value!r}: expected a number of 0 or more")
    return int(value)


def choose_coordinator(environ: Environment, host: str, port: int) -> str:
    """Return the coordinator's host:port.

    The user's variables override the launcher's values, whose port may be in use and whose address
    may belong to the wrong network.
    """
    return environ.get(JAX_VARIABLES[0]) or f"{host}:{environ.get('JAX_COORDINATOR_PORT') or port}"


def list_tpu_hosts(environ: Environment) -> list[str]:
    """Return the addresses of the hosts of this TPU slice; [""] if no variable has them."""
    return (
        environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES") or ""
    ).split(",")


def describe_missing_srun(environ: Environment, *sizes: str) -> str:
    """Return a note if a Slurm job has several tasks or nodes and this process runs alone, else "".

    This happens in an sbatch script and in the shell of salloc. sizes: the variables that count the
    tasks or nodes.
    """
    tasks = max(parse_number(environ, name, 1) for name in sizes)
    if not environ.get("SLURM_JOB_ID") or tasks == 1:
        return ""
    return (
        f"this Slurm job has room for {tasks} processes, but `srun` did not start this one: it "
        "runs by itself. Put srun before the command"
    )


def count_local_tasks(environ: Environment) -> int | None:
    """Return the number of the step's tasks on this node; None if Slurm does not report it."""
    # For example 2(x3),1
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    counts = [int(count) for count, repeats in groups for _ in range(int(repeats or 1))]
    node = parse_number(environ, "SLURM_NODEID", 0)
    return counts[node] if node < len(counts) else None


def assign_gpus(
    environ: Environment, local_rank: int, local_size: int | None
) -> tuple[int, ...] | None:
    """Return the indices of a process's GPUs among the visible ones; None for all of them.

    A launcher either shows each process its own GPUs only, or shows all GPUs to each process: then
    they are divided evenly among the `local_size` processes of the host.
    """
    if local_size == 1 or environ.get("JAX_LOCAL_DEVICE_IDS"):  # JAX reads the latter by itself
        return None
    visible = next(
        (
            environ[name]
            for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
            if environ.get(name)
        ),
        None,
    )
    if visible is None or local_size is None:
        return (local_rank,)  # as JAX does
    num_visible = len(visible.split(","))
    if num_visible < parse_number(environ, "SLURM_GPUS_ON_NODE", local_size):
        return None
    if num_visible % local_size:
        raise ValueError(
            f"{local_size} processes of this host see {num_visible} GPUs, which do not divide "
            "evenly: start one process per host or one per GPU, or set JAX_LOCAL_DEVICE_IDS in each"
        )
    share = num_visible // local_size
    return tuple(range(local_rank * share, (local_rank + 1) * share))
