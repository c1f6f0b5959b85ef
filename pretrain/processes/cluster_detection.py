"""Detect the processes of a run from flags or from the environment. Pure functions, without JAX.

The table `LAUNCHERS` replaces JAX's own detection: under Slurm, JAX (0.10) takes one GPU per
process whatever the task was given, and counts the tasks of the job even if `srun` has started only
some of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from pretrain.processes.launcher_variables import (
    JAX_VARIABLES,
    Environment,
    assign_gpus,
    choose_coordinator,
    count_local_tasks,
    describe_missing_srun,
    list_tpu_hosts,
    parse_number,
)

FLAGS = ("--coordinator", "--processes", "--process")
SLURM_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)
EPHEMERAL_PORT = 61440  # the first of the 4096 ports that jobs get, as in JAX
TPU_PORT = 8482  # of the coordinator on TPU hosts, as in JAX


@dataclasses.dataclass(frozen=True)
class Cluster:
    """This process and the other processes of its run.

    Attributes:
      name: a key of LAUNCHERS, "flags" or "none".
      num_processes: number of processes; None if JAX must find out.
      process_index: index of this process.
      coordinator: host:port of process 0.
      devices: indices of this process's GPUs among the visible ones; None for all.
      note: a line for the user, or "".

    Raises:
      ValueError: the index or the coordinator is not valid.
    """

    name: str
    num_processes: int | None = 1
    process_index: int = 0
    coordinator: str | None = None
    devices: tuple[int, ...] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.num_processes is None or self.name == "none":
            return
        if self.num_processes < 1 or not 0 <= self.process_index < self.num_processes:
            raise ValueError(
                f"{self.launcher_title}: process {self.process_index} of {self.num_processes}: "
                "there is at least one process, and processes are numbered from 0"
            )
        host, _, port = (self.coordinator or "").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{self.launcher_title}: the coordinator {self.coordinator!r} is not host:port"
            )

    @property
    def launcher_title(self) -> str:
        """The name of the launcher, or the flags."""
        return LAUNCHERS[self.name].title if self.name in LAUNCHERS else ", ".join(FLAGS)

    def __str__(self) -> str:
        if self.name == "none":
            return "CLOZE_CLUSTER=none, or no other processes detected"
        if self.num_processes is None:
            return f"{self.launcher_title}: JAX gets the other processes from it"
        gpus = (
            f", GPU {', '.join(map(str, self.devices))} of the visible ones"
            if self.devices is not None
            else ""
        )
        return (
            f"{self.launcher_title}, process {self.process_index} of {self.num_processes} "
            f"(from 0), coordinator {self.coordinator}{gpus}"
        )


# ---- detection ---------------------------------------------------------------


def detect_cluster(
    environ: Environment, flags: tuple[str | None, int | None, int | None] = (None, None, None)
) -> Cluster:
    """Return the cluster that the flags or else the environment describe; `none` without either.

    CLOZE_CLUSTER names a launcher of LAUNCHERS, or `none`, instead of the first one detected.

    Args:
      flags: (coordinator, number of processes, index of this process).

    Raises:
      ValueError: a value is missing or not valid.
    """
    if any(flag is not None for flag in flags):
        if missing := [name for name, flag in zip(FLAGS, flags) if flag is None]:
            raise ValueError(
                f"{', '.join(FLAGS)} must be given together; missing: {', '.join(missing)}"
            )
        coordinator, num_processes, index = flags
        assert index is not None  # as checked above
        return Cluster("flags", num_processes, index, coordinator)
    requested = environ.get("CLOZE_CLUSTER")
    if requested and requested not in ("none", *LAUNCHERS):
        raise ValueError(
            f"CLOZE_CLUSTER={requested}: expected one of none, {', '.join(LAUNCHERS)}, or unset to "
            "take the first launcher that is detected"
        )
    # An address alone is incomplete, which the check for missing variables reports.
    default = "jax" if environ.get(JAX_VARIABLES[0]) else "none"
    name = requested or next(
        (name for name, launcher in LAUNCHERS.items() if launcher.is_present(environ)), default
    )
    if name == "none":
        return Cluster(
            "none",
            note=""
            if requested
            else describe_missing_srun(environ, "SLURM_NTASKS", "SLURM_JOB_NUM_NODES"),
        )
    if missing := [
        variable for variable in LAUNCHERS[name].required_variables if not environ.get(variable)
    ]:
        raise ValueError(
            f"{LAUNCHERS[name].title}: needs {', '.join(LAUNCHERS[name].required_variables)}; "
            f"missing: {', '.join(missing)}"
        )
    return LAUNCHERS[name].read_cluster(environ)


def _read_jax(environ: Environment) -> Cluster:
    return Cluster(
        "jax",
        parse_number(environ, JAX_VARIABLES[1]),
        parse_number(environ, JAX_VARIABLES[2]),
        environ[JAX_VARIABLES[0]],
    )


def _read_open_mpi(environ: Environment) -> Cluster:
    local_rank = parse_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK")
    local_size = parse_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    # For example 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
    launcher = re.match(r"(\d+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", uri)
    if not launcher and not environ.get(JAX_VARIABLES[0]):  # Open MPI 5 has no such variable
        raise ValueError(
            "Open MPI does not give the address of process 0: "
            f"use mpirun -x {JAX_VARIABLES[0]}=host:port ..."
        )
    job, ipv4, ipv6 = launcher.groups() if launcher else ("0", "", "")
    port = EPHEMERAL_PORT + int(job) // 4096 % 4096
    coordinator = choose_coordinator(environ, ipv4 or f"[{ipv6}]", port)
    return Cluster(
        "ompi",
        parse_number(environ, "OMPI_COMM_WORLD_SIZE"),
        parse_number(environ, "OMPI_COMM_WORLD_RANK"),
        coordinator,
        assign_gpus(environ, local_rank, local_size),
    )


def _read_slurm(environ: Environment) -> Cluster:
    # The tasks of the step: in the shell of an interactive step SLURM_NTASKS counts the job's
    # tasks, which have not been started.
    tasks = parse_number(environ, "SLURM_STEP_NUM_TASKS", parse_number(environ, "SLURM_NTASKS"))
    nodes = environ["SLURM_STEP_NODELIST"]  # for example node[001-015,020],other
    first_node = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", nodes)
    if not first_node:
        raise ValueError(
            f"SLURM_STEP_NODELIST={nodes!r}: expected a list of hosts such as node[001-015]"
        )
    host = "".join(filter(None, first_node.groups()))
    port = EPHEMERAL_PORT + parse_number(environ, "SLURM_JOB_ID") % 4096
    coordinator = choose_coordinator(environ, host, port)
    devices = assign_gpus(
        environ, parse_number(environ, "SLURM_LOCALID"), count_local_tasks(environ)
    )
    note = describe_missing_srun(environ, "SLURM_NTASKS") if tasks == 1 else ""
    return Cluster(
        "slurm", tasks, parse_number(environ, "SLURM_PROCID"), coordinator, devices, note
    )


def _read_gke(environ: Environment) -> Cluster:
    hosts = list_tpu_hosts(environ)
    slices = parse_number(environ, "MEGASCALE_NUM_SLICES", 1)
    needed = ("MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS") if slices > 1 else ()
    missing = [name for name in needed if not environ.get(name)]
    missing += ["TPU_WORKER_HOSTNAMES"] * (hosts == [""])
    if missing:
        raise ValueError(
            f"{LAUNCHERS['gke'].title} describe {slices} slices; missing: {', '.join(missing)}"
        )
    first_index = parse_number(environ, "MEGASCALE_SLICE_ID") * len(hosts) if slices > 1 else 0
    host = (environ.get("MEGASCALE_COORDINATOR_ADDRESS") or hosts[0]).split(":")[0]
    coordinator = choose_coordinator(environ, host, TPU_PORT)
    index = first_index + parse_number(environ, "TPU_WORKER_ID")
    return Cluster("gke", len(hosts) * slices, index, coordinator)


def _has_several_tpu_hosts(environ: Environment) -> bool:
    return len(list_tpu_hosts(environ)) > 1 or environ.get("MEGASCALE_NUM_SLICES", "") not in (
        "",
        "1",
    )


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A way to start the processes of a run.

    Attributes:
      is_present: returns whether an environment comes from this launcher.
      required_variables: the variables that it must have set.
    """

    title: str
    is_present: Callable[[Environment], bool]
    required_variables: tuple[str, ...]
    read_cluster: Callable[[Environment], Cluster]


# The first launcher that is detected counts. Open MPI comes before Slurm, since `mpirun` may start
# its processes within a Slurm job.
LAUNCHERS = {
    "jax": Launcher(
        "JAX's variables",
        lambda environ: any(environ.get(name) for name in JAX_VARIABLES[1:]),
        JAX_VARIABLES,
        _read_jax,
    ),
    "ompi": Launcher(
        "Open MPI",
        lambda environ: bool(environ.get("OMPI_COMM_WORLD_SIZE")),
        (
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
        ),
        _read_open_mpi,
    ),
    "slurm": Launcher(
        "Slurm",
        lambda environ: all(environ.get(name) for name in SLURM_VARIABLES),
        SLURM_VARIABLES,
        _read_slurm,
    ),
    "gke": Launcher("GKE's TPU variables", _has_several_tpu_hosts, ("TPU_WORKER_ID",), _read_gke),
    # Only by CLOZE_CLUSTER=tpu, which `pod run` sets: without a metadata server, a request to it
    # takes seconds.
    "tpu": Launcher(
        "Cloud TPU's metadata server",
        lambda environ: False,
        (),
        lambda environ: Cluster("tpu", None),
    ),
}
