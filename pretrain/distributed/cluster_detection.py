"""Who the other processes of a run are, read off flags or the environment by one table: pure, and without JAX.

JAX's own search is not used where the table knows the answer: under Slurm it takes one GPU a process whatever a task was given, and counts
the job's tasks where `srun` may have started only some of them (the source of JAX 0.10).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

FLAGS = ("--coordinator", "--processes", "--process")
JAX = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
EPHEMERAL = 61440  # jobs get one of the 4096 ports from here on, as in JAX
TPU_PORT = 8482  # of the coordinator on TPU hosts, as in JAX


@dataclasses.dataclass(frozen=True)
class Cluster:
    """This process among those of its run. Raises ValueError for a place that does not exist.

    name: a key of LAUNCHERS, "flags" or "none". processes: None where only JAX will find out. coordinator: host:port of process 0.
    devices: numbers of the GPUs that are this process's among those it sees; None for all. note: what a person should know.
    """

    name: str
    processes: int | None = 1
    process: int = 0
    coordinator: str | None = None
    devices: tuple[int, ...] | None = None
    note: str = ""

    def __post_init__(self):
        if self.processes is None or self.name == "none":
            return
        if self.processes < 1 or not 0 <= self.process < self.processes:
            raise ValueError(
                f"{self.title}: process {self.process} of {self.processes}: processes are numbered from 0, and there is one at least"
            )
        host, _, port = (self.coordinator or "").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{self.title}: the coordinator {self.coordinator!r} is not host:port")

    @property
    def title(self):
        """Who tells."""
        return LAUNCHERS[self.name].title if self.name in LAUNCHERS else ", ".join(FLAGS)

    def __str__(self):
        if self.name == "none":
            return "CLOZE_CLUSTER=none, or nothing speaks of others"
        if self.processes is None:
            return f"{self.title}: JAX asks it for the others"
        gpus = (
            f", GPU {', '.join(map(str, self.devices))} of those it sees"
            if self.devices is not None
            else ""
        )
        return f"{self.title}, process {self.process} of {self.processes} (from 0), coordinator {self.coordinator}{gpus}"


# ---- what is recognised ------------------------------------------------------


def recognise(environ: Mapping[str, str], flags=(None, None, None)) -> Cluster:
    """What flags (coordinator, processes, process) or else the environment say of the others; `none` where they say nothing.

    CLOZE_CLUSTER takes one row of LAUNCHERS, or `none`, instead of the first that is recognised. Raises ValueError where a part is missing
    or makes no sense.
    """
    if any(flag is not None for flag in flags):
        if missing := [name for name, flag in zip(FLAGS, flags) if flag is None]:
            raise ValueError(
                f"{', '.join(FLAGS)} are given all three or not at all; missing: {', '.join(missing)}"
            )
        coordinator, processes, process = flags
        return Cluster("flags", processes, process, coordinator)
    asked = environ.get("CLOZE_CLUSTER")
    if asked and asked not in ("none", *LAUNCHERS):
        raise ValueError(
            f"CLOZE_CLUSTER={asked}: one of none, {', '.join(LAUNCHERS)}, or unset to take the first that is recognised"
        )
    otherwise = (
        "jax" if environ.get(JAX[0]) else "none"
    )  # an address alone tells too little, but not nothing
    name = asked or next(
        (name for name, launcher in LAUNCHERS.items() if launcher.recognised(environ)), otherwise
    )
    if name == "none":
        return Cluster(
            "none",
            note="" if asked else _without_srun(environ, "SLURM_NTASKS", "SLURM_JOB_NUM_NODES"),
        )
    if missing := [variable for variable in LAUNCHERS[name].needs if not environ.get(variable)]:
        raise ValueError(
            f"{LAUNCHERS[name].title}: needs {', '.join(LAUNCHERS[name].needs)}; missing: {', '.join(missing)}"
        )
    return LAUNCHERS[name].read(environ)


def _jax(environ):
    return Cluster("jax", _number(environ, JAX[1]), _number(environ, JAX[2]), environ[JAX[0]])


def _ompi(environ):
    local, many = (
        _number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")  # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    launcher = re.match(r"(\d+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", uri)
    if not launcher and not environ.get(JAX[0]):  # Open MPI 5 has no such variable
        raise ValueError(
            f"Open MPI does not tell where process 0 is: mpirun -x {JAX[0]}=host:port ..."
        )
    job, four, six = launcher.groups() if launcher else ("0", "", "")
    where = _coordinator(environ, four or f"[{six}]", EPHEMERAL + int(job) // 4096 % 4096)
    return Cluster(
        "ompi",
        _number(environ, "OMPI_COMM_WORLD_SIZE"),
        _number(environ, "OMPI_COMM_WORLD_RANK"),
        where,
        _share(environ, local, many),
    )


def _slurm(environ):
    # A step's tasks: in the shell of an interactive step SLURM_NTASKS are the job's, which nobody started.
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS", _number(environ, "SLURM_NTASKS"))
    first = re.match(
        r"([^,\[]+)(?:\[([^,\-\]]+))?", environ["SLURM_STEP_NODELIST"]
    )  # node[001-015,020],other
    if not first:
        raise ValueError(
            f"SLURM_STEP_NODELIST={environ['SLURM_STEP_NODELIST']!r}: expected a list of hosts such as node[001-015]"
        )
    where = _coordinator(
        environ,
        "".join(filter(None, first.groups())),
        EPHEMERAL + _number(environ, "SLURM_JOB_ID") % 4096,
    )
    devices = _share(environ, _number(environ, "SLURM_LOCALID"), _tasks_here(environ))
    note = _without_srun(environ, "SLURM_NTASKS") if tasks == 1 else ""
    return Cluster("slurm", tasks, _number(environ, "SLURM_PROCID"), where, devices, note)


def _gke(environ):
    hosts = _tpu_hosts(environ)
    slices = _number(environ, "MEGASCALE_NUM_SLICES", 1)
    needed = ("MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS") if slices > 1 else ()
    missing = [name for name in needed if not environ.get(name)] + ["TPU_WORKER_HOSTNAMES"] * (
        hosts == [""]
    )
    if missing:
        raise ValueError(
            f"{LAUNCHERS['gke'].title} speak of {slices} slices; missing: {', '.join(missing)}"
        )
    before = _number(environ, "MEGASCALE_SLICE_ID") * len(hosts) if slices > 1 else 0
    where = _coordinator(
        environ, (environ.get("MEGASCALE_COORDINATOR_ADDRESS") or hosts[0]).split(":")[0], TPU_PORT
    )
    return Cluster("gke", len(hosts) * slices, before + _number(environ, "TPU_WORKER_ID"), where)


def _several_tpu_hosts(environ):
    return len(_tpu_hosts(environ)) > 1 or environ.get("MEGASCALE_NUM_SLICES", "") not in ("", "1")


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A row of the table: who tells, when this row is taken, the variables that it then needs, and how they are read."""

    title: str
    recognised: Callable[[Mapping[str, str]], bool]
    needs: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Cluster]


# The first row that is recognised counts. Open MPI stands before Slurm, in whose jobs `mpirun` starts its own processes.
LAUNCHERS = {
    "jax": Launcher(
        "JAX's variables", lambda environ: any(environ.get(name) for name in JAX[1:]), JAX, _jax
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
        _ompi,
    ),
    "slurm": Launcher(
        "Slurm", lambda environ: all(environ.get(name) for name in SLURM), SLURM, _slurm
    ),
    "gke": Launcher("GKE's TPU variables", _several_tpu_hosts, ("TPU_WORKER_ID",), _gke),
    # Only by CLOZE_CLUSTER=tpu, which `pod run` sets: asking for the metadata server takes seconds where there is none.
    "tpu": Launcher(
        "Cloud TPU's metadata server",
        lambda environ: False,
        (),
        lambda environ: Cluster("tpu", None),
    ),
}


# ---- reading variables -------------------------------------------------------


def _number(environ, name, default=None):
    value = environ.get(name) or str(default)
    if not value.isdecimal():
        raise ValueError(f"{name}={value!r}: expected a number of 0 or more")
    return int(value)


def _coordinator(environ, host, port):
    """What the user set goes before what a launcher tells: a port may be taken, an address be of the wrong network."""
    return environ.get(JAX[0]) or f"{host}:{environ.get('JAX_COORDINATOR_PORT') or port}"


def _tpu_hosts(environ):
    return (
        environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES") or ""
    ).split(",")


def _without_srun(environ, *sizes):
    """A note where a job has several tasks or nodes, but this process is one alone: in an sbatch script or salloc's shell."""
    tasks = max(_number(environ, name, 1) for name in sizes)
    if not environ.get("SLURM_JOB_ID") or tasks == 1:
        return ""
    return f"this Slurm job has room for {tasks} processes, but `srun` did not start this one: it runs by itself. Put srun before the command"


def _tasks_here(environ):
    """How many tasks of the step run on this node; None where Slurm does not tell. SLURM_STEP_TASKS_PER_NODE: 2(x3),1"""
    each = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    found = [
        (int(many), int(times or 1)) for many, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", each)
    ]
    counts = [many for many, times in found for _ in range(times)]
    node = _number(environ, "SLURM_NODEID", 0)
    return counts[node] if node < len(counts) else None


def _share(environ, local, many):
    """The GPUs of the process `local` of `many` on this host, among those that it sees; None for all of them.

    A launcher either shows each process its own GPUs only or shows all to each: then they are shared out evenly.
    """
    if many == 1 or environ.get("JAX_LOCAL_DEVICE_IDS"):  # JAX reads the latter by itself
        return None
    visible = next(
        (
            environ[name]
            for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
            if environ.get(name)
        ),
        None,
    )
    if visible is None or many is None:
        return (local,)  # as JAX does
    seen = len(visible.split(","))
    if seen < _number(environ, "SLURM_GPUS_ON_NODE", many):
        return None
    if seen % many:
        raise ValueError(
            f"{many} processes of this host see {seen} GPUs, which do not divide evenly: start one process a host or one a GPU, "
            "or set JAX_LOCAL_DEVICE_IDS in each"
        )
    each = seen // many
    return tuple(range(local * each, (local + 1) * each))
