"""The hardware and software of a run: one line for each of its starts in `environment.jsonl`.

The report of a run needs it to judge the speed. `flops_per_step` counts the matmul FLOPs of a step;
`peak_flops` is the peak of all devices of the mesh together, in FLOP/s, and null if unknown.
`phases` has the name, the last step and the FLOPs of a step of each phase or stair.
"""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any

from etils import epath

from data.corpus.json_lines import format_json_lines
from data.store.atomic import write_atomically
from pretrain.host.extras import DISTRIBUTION, find_version
from pretrain.workdir.step_lines import mend_step_lines, report_step_lines

if TYPE_CHECKING:
    from jax.sharding import Mesh

NAME = "environment.jsonl"
# Of what reports read.
FORM = {
    "time": int | float,
    "device": str,
    "devices": int | float,
    "mesh": dict,
    "packages": dict,
    "flops_per_step": int | float | None,
    "peak_flops": int | float | None,
    "phases": list,
}
LATEST = 8.64e12  # [s] the last time that a browser can show
PACKAGES = (
    DISTRIBUTION,
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


def add_start(
    workdir: epath.PathLike,
    step: int,
    mesh: Mesh,
    processes: int,
    flops_per_step: float,
    peak_flops: float | None,
) -> None:
    """Add the line of a start that continues after `step`.

    Lines of earlier starts at this step or later are dropped, since none of their steps remain.
    """
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
        "packages": {name: version for name in PACKAGES if (version := find_version(name))},
    }
    lines = [*(earlier for earlier in mend_step_lines(path) if earlier["step"] < step), line]
    write_atomically(path, format_json_lines(lines))


def extend_start(workdir: epath.PathLike, **facts: Any) -> None:
    """Add facts to the line of the latest start, such as the attention kernels it compiled."""
    path = epath.Path(workdir) / NAME
    if lines := mend_step_lines(path):
        write_atomically(path, format_json_lines([*lines[:-1], lines[-1] | facts]))


def read_starts(workdir: epath.PathLike) -> list[dict[str, Any]]:
    """Return the lines of a workdir, in the order of their steps.

    Damaged lines are left out and reported: only reports use the file.
    """
    return report_step_lines(epath.Path(workdir) / NAME, is_sound=is_start)


def is_start(line: dict[str, Any]) -> bool:
    """Return whether what a line has of a start has the form that `add_start` writes."""
    has_form = all(isinstance(line[name], kind) for name, kind in FORM.items() if name in line)
    has_form = has_form and all(
        isinstance(phase, dict)
        and isinstance(phase.get("name"), str)
        and isinstance(phase.get("stop"), int)
        and isinstance(phase.get("flops_per_step"), int | float)
        for phase in line.get("phases", ())
    )
    return has_form and 0 <= line.get("time", 0) <= LATEST
