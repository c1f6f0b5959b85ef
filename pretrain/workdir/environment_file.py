"""On what a run was computed: a line for each of its starts in `environment.jsonl`, so that its speed can be judged afterwards.

flops_per_step are matmul FLOPs that the step needs; peak_flops those that all devices of the mesh can do a second (null where it is not known).
"""

import os
import platform
import time
from importlib import metadata

from etils import epath

from data.corpus.json_lines import format_json_lines, parse_json_lines
from data.store.atomic import write_atomically

NAME = "environment.jsonl"
PACKAGES = (
    "cloze",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "tensorflow-cpu",
    "tensorflow",
    "libtpu",
)


def note(workdir, step, mesh, processes, flops_per_step, peak_flops):
    """Add the line of a start that goes on behind `step`; those of starts from there on left no step."""
    path = epath.Path(workdir) / NAME
    device = mesh.devices.flat[0]
    line = {
        "step": step,
        "time": time.time(),
        "platform": device.platform,
        "device": device.device_kind,
        "devices": mesh.size,
        "processes": processes,
        "cores": os.cpu_count(),
        "mesh": dict(mesh.shape),
        "flops_per_step": flops_per_step,
        "peak_flops": peak_flops,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }
    lines = [*(one for one in read(workdir) if one["step"] < step), line]
    write_atomically(path, format_json_lines(lines))


def read(workdir):
    """The lines of a workdir, in the order of their steps; none where there is no file, or none that can be read: only a report lacks it."""
    path = epath.Path(workdir) / NAME
    if not path.exists():
        return []
    try:
        lines = parse_json_lines(path.read_text())
        return [line for line in lines if isinstance(line["step"], int)]
    except (ValueError, TypeError, KeyError):
        print(f"{path} cannot be read; it begins anew")
        return []


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
