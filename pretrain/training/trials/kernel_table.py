"""A table of this machine's hand-made operations: which of them agree with the plain equations.

The shapes come from configurations, on one device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
from etils import epath

from pretrain.config import Mesh, list_names, load
from pretrain.kernels.attention.choice import (
    CHUNK_KERNELS,
    KERNELS,
    PLATFORMS,
    format_names,
    has_kernels,
    list_all_kernels,
)
from pretrain.kernels.trials.attention_calls import name_call
from pretrain.kernels.trials.comparison import Verdict
from pretrain.kernels.trials.kernel_trust import RememberedTrust, find_own_device
from pretrain.kernels.trials.trial_memory import TrialMemory
from pretrain.mesh.sharding import make_mesh
from pretrain.processes.watchdog import Watchdog
from pretrain.settings import Limits
from pretrain.training.program import make_program
from pretrain.training.trials import EXCHANGE, GATHERS, LOSS, Trust
from pretrain.training.trials.operation_trials import list_trials
from pretrain.training.trials.trusted_program import trace_attention, try_attention, try_operation

END = "_base"  # of the names of the configurations that are tried by default
WIDTH = 20  # characters of an operation


def list_lines(names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table; what is not remembered is compared now.

    names: configurations; by default all whose name has END.
    """
    mesh = make_mesh(Mesh(1), jax.local_devices()[:1])
    if not has_kernels(mesh):
        yield from describe_absence(mesh.devices.flat[0].platform)
        return
    device, memory = find_own_device(mesh), TrialMemory()
    yield f"kernels on {device.device_kind}, remembered in {memory.folder}:"
    for name in names or (one for one in list_names() if one.endswith(END)):
        yield f"  {name}"
        yield from list_config_lines(name, mesh, RememberedTrust(memory, device))


def list_config_lines(name: str, mesh: jax.sharding.Mesh, trust: RememberedTrust) -> Iterator[str]:
    """Yield a line for each operation of a configuration."""
    device = mesh.devices.flat[0]
    run = load(name, ["mesh.data=1", "mesh.fsdp=1", "mesh.model=1", "mesh.sequence=1"])
    program = make_program(run, mesh, trust=Trust(trust.find_doubt))
    trace_attention(program, mesh)
    trials = [
        (trial, trust.make_key(trial.name, trial.shapes))
        for trial in list_trials(run, mesh, program, device)
    ]
    report = epath.Path(trust.memory.folder) / "hung.txt"
    with Watchdog(Limits(), report) as dog:
        try_attention(trust, device, dog)
        for trial, key in trials:
            try_operation(trust, trial, key, dog)
    rows = [
        (candidate.kernel.name, name_call(candidate.call), candidate.key)
        for candidate in trust.candidates.values()
    ]
    rows += [(trial.name, "", key) for trial, key in trials]
    for operation, shapes, key in rows:
        verdict = trust.find_verdict(key) or Verdict(detail="not needed, so not compared")
        found = verdict.reason or verdict.detail
        yield f"    {operation:<{WIDTH}}{found}{f' ({shapes})' if shapes else ''}"
    for path, lines in program.attention.items():
        if not lines:
            yield f"    no attention in the {path}"


def describe_absence(platform: str) -> Iterator[str]:
    """Yield what computes attention on a platform without kernels, and what others would test."""
    yield f"on {PLATFORMS.get(platform, platform)} the plain equations compute attention"
    for other in sorted({*KERNELS, *CHUNK_KERNELS}):
        kernels = format_names([kernel.name for kernel in list_all_kernels(other)], "and")
        operations = format_names([GATHERS, LOSS] if other == "gpu" else [LOSS, EXCHANGE], "and")
        yield (
            f"  on {PLATFORMS.get(other, other)} a run compares {kernels} with them before its "
            f"first step, and {operations} with XLA's"
        )
