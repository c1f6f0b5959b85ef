"""Search for variants of a run that fit in memory or run faster; each one is compiled."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pretrain.config import Mesh, override_run
from pretrain.plan.estimate import plan_run
from pretrain.plan.roofline import format_share
from pretrain.settings.overrides import ConfigError
from pretrain.training.memory.remedies import SHARD_STATE, find_remat_key

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.plan.topology import Machine


def try_remedies(
    run: Run, machine: Machine, report: Callable[[str], None], quick: bool = False
) -> list[dict[str, Any]]:
    """Try memory-saving changes, the cheapest first, until one fits.

    Returns:
      [{words, plan}] of every variant tried: its overrides and its plan.
    """
    tried = []
    for overrides in iterate_remedies(run, len(machine.devices)):
        try:
            facts = plan_run(override_run(run, overrides), machine, evaluation=False, quick=quick)
        except (ConfigError, ValueError):
            continue  # does not divide on this mesh
        tried.append({"words": overrides, "plan": facts})
        report(f"  {' '.join(overrides)}: {summarize_plan(facts)}")
        if facts["fits"]:
            break
    return tried


def iterate_remedies(run: Run, num_devices: int) -> Iterator[list[str]]:
    """Yield lists of `path=value` overrides that need less memory than the run, cheapest first."""
    overrides = []
    if run.mesh.fsdp not in (-1, num_devices) and run.mesh.model == 1:
        overrides = [*SHARD_STATE]
        yield list(overrides)
    if (key := find_remat_key(run.model)) and not run.model.remat:
        overrides = overrides + [f"{key}=true"]  # adds a second forward pass
        yield list(overrides)
    for factor in (2, 4, 8, 16):
        yield overrides + [f"train.microbatches={run.train.microbatches * factor}"]
    for model in (2, 4, 8):
        if num_devices % model == 0:
            yield [item for item in overrides if not item.startswith("mesh")] + [
                *SHARD_STATE,
                f"mesh.model={model}",
            ]


def search_variants(
    run: Run,
    machine: Machine,
    report: Callable[[str], None],
    quick: bool = False,
    max_variants: int = 5,
) -> list[dict[str, Any]]:
    """Compile meshes x micro-batches x remat and return the fastest variants that fit.

    Meshes: each split of `data` and `fsdp` into powers of two; and with 2 and 4 devices (also 8
    with 64 devices or more) on `model` all `data`, all `fsdp`, and a square of the two.

    Returns:
      [{words, plan}], sorted by the lower bound of the step time; [] if no variant fits.

    Raises:
      ConfigError: there is nothing to try, or nothing could be compiled.
    """
    compiled, reason = [], None
    candidates = list(iterate_variants(run, len(machine.devices)))
    if not candidates:
        raise ConfigError(
            f"mesh.sequence={run.mesh.sequence} and data.batch_size={run.data.batch_size} leave no "
            f"mesh of {len(machine.devices)} devices to try"
        )
    for number, overrides in enumerate(candidates, 1):
        prefix = f"{number}/{len(candidates)}  {' '.join(overrides)}"
        try:
            facts = plan_run(override_run(run, overrides), machine, evaluation=False, quick=quick)
        except (ConfigError, ValueError) as error:
            reason = error
            report(f"{prefix}: {error}")
            continue
        report("; ".join([f"{prefix}: {summarize_plan(facts)}", *facts["exchange"][1:]]))
        compiled.append({"words": overrides, "plan": facts})
    if not compiled:
        raise ConfigError(
            f"none of the {len(candidates)} configurations was compiled; the last one: {reason}"
        )
    fitting = [variant for variant in compiled if variant["plan"]["fits"]]
    return sorted(fitting, key=lambda variant: variant["plan"]["step_seconds_bound"] or math.inf)[
        :max_variants
    ]


def iterate_variants(run: Run, num_devices: int) -> Iterator[list[str]]:
    """Yield the overrides of each candidate of `search_variants`.

    All have the axis `sequence` of the run.
    """
    sequence = max(run.mesh.sequence, 1)
    models = [
        model
        for model in (1, 2, 4, 8)
        if num_devices % (model * sequence) == 0
        and model <= max(4, num_devices // 8)
        and run.model.num_heads % model == 0
    ]
    key = find_remat_key(run.model)
    remats = [f"{key}=false", f"{key}=true"] if key else [""]
    for model, microbatches, remat in itertools.product(models, (1, 2, 4), remats):
        rest = num_devices // (model * sequence)
        exponent = int(math.log2(rest))
        exponents = range(exponent) if model == 1 else (0, exponent // 2)
        for fsdp in sorted({*(2**power for power in exponents), rest}):
            mesh = (rest // fsdp, fsdp, model) if rest % fsdp == 0 else None
            if mesh is None or run.data.batch_size % (microbatches * rest):
                continue
            yield [
                *(
                    f"mesh.{field.name}={size}"
                    for field, size in zip(dataclasses.fields(Mesh), mesh)
                ),
                f"train.microbatches={microbatches}",
                *([remat] if remat else []),
            ]


def summarize_plan(facts: dict[str, Any]) -> str:
    """Return one line about a plan: whether it fits, its peak memory and its bounds."""
    sizes = facts["bytes_per_chip"]
    peak = f"{sizes['peak'] / 2**30:.2f} GiB a chip" if sizes["peak"] else "more than available"
    if not facts["fits"]:
        return f"does not fit ({peak})"
    if facts["step_seconds_bound"] is None:
        return f"fits ({peak})"
    return (
        f"fits ({peak}), at least {facts['step_seconds_bound'] * 1e3:.1f} ms a step, "
        f"MFU at most {format_share(facts['mfu_bound'])}"
    )
