"""The check of a run's memory before anything is compiled, and its account of exhausted memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import jax

from pretrain.settings.overrides import ConfigError
from pretrain.training.memory.device_memory import (
    DeviceMemory,
    find_local_memory,
    find_smallest_memory,
    format_bytes,
)
from pretrain.training.memory.memory_estimate import (
    MemoryEstimate,
    estimate_memory,
    is_obviously_small,
)
from pretrain.training.memory.remedies import find_remedies

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.training.program import Program


# Activations that exceed a device's memory so many times: recomputing them saves less.
HOPELESS = 64


def check_memory(run: Run, mesh: jax.sharding.Mesh, program: Program) -> None:
    """Refuse a run that cannot fit in the memory of its devices, and warn of one that may not.

    The state, the batch and the gradients that a loop carries are certain: a run is refused if
    they exceed all the memory that a device can have. Activations are an estimate, and other
    programs may free their memory, so they make a warning, and a refusal only beyond HOPELESS times
    that memory. See `guard.memory_check`.

    Raises:
      ConfigError: the run cannot fit; the same in all processes.
    """
    if run.guard.memory_check == "off":
        return
    memory = find_smallest_memory(mesh)
    if memory is None:
        return
    estimate = estimate_memory(run, mesh, program, with_activations=False)
    if estimate.certain > memory.total:
        refuse_run(run, describe_refusal(run, mesh, estimate, memory))
        return
    if is_obviously_small(run, memory.available - estimate.expected):
        return
    estimate = estimate_memory(run, mesh, program)
    if estimate.expected > HOPELESS * memory.total:
        has = f"{memory.name} has {format_bytes(memory.total)}"
        remedies = describe_remedies(run, mesh, memory.available)
        refuse_run(run, f"{describe_estimate(estimate)}, and {has}. {remedies}")
    elif estimate.expected > memory.available:
        print_warning(
            f"{describe_estimate(estimate)}, and {memory.name} has "
            f"{format_bytes(memory.available)} available: it may not fit. "
            f"{describe_remedies(run, mesh, memory.available)}. guard.memory_check=off skips this "
            "estimate"
        )


def refuse_run(run: Run, line: str) -> None:
    """Raise ConfigError with a line on a run that cannot fit, or print it (guard.memory_check)."""
    if run.guard.memory_check == "refuse":
        raise ConfigError(
            f"{line}. Nothing was compiled or written; guard.memory_check=warn starts the run all "
            "the same"
        )
    print_warning(line)


def print_warning(line: str) -> None:
    """Print a warning to the standard error, in the first process only."""
    if jax.process_index() == 0:
        print(f"warning: {line}", file=sys.stderr, flush=True)


def describe_refusal(
    run: Run, mesh: jax.sharding.Mesh, estimate: MemoryEstimate, memory: DeviceMemory
) -> str:
    """Return why a run cannot fit, and what would."""
    return (
        f"a step needs at least {format_bytes(estimate.certain)} on each device "
        f"({estimate.format_certain_terms()}), and {memory.name} has "
        f"{format_bytes(memory.total)}. {describe_remedies(run, mesh, memory.available)}"
    )


def describe_estimate(estimate: MemoryEstimate) -> str:
    """Return the expected bytes of a step."""
    expected = format_bytes(estimate.expected)
    return f"a step takes about {expected} on each device ({estimate.format_terms()})"


def describe_remedies(run: Run, mesh: jax.sharding.Mesh, budget: int) -> str:
    """Return a sentence on what is estimated to fit into `budget` bytes on each device."""
    remedies = find_remedies(run, mesh, budget)
    if not remedies:
        return "No smaller batch, other optimizer or mesh is estimated to fit: use a smaller model"
    return f"What is estimated to fit: {'; or '.join(remedies)}"


def describe_exhausted_run(run: Run, mesh: jax.sharding.Mesh) -> str:
    """Return the estimate of a run whose memory was exhausted, and what takes clearly less.

    The estimate may be too low, so what is proposed has at most half the activations of the run.
    """
    memory, estimate = find_local_memory(mesh), estimate_memory(run, mesh)
    budget, text = estimate.expected - (estimate.activations or 0) // 2, describe_estimate(estimate)
    if memory is not None:  # What is available now does not include the arrays of this run.
        budget = min(budget, memory.total)
        text += f", and {memory.name} has {format_bytes(memory.total)}"
    return f"{text}. {describe_remedies(run, mesh, budget)}"
