"""Plan one run on one machine: compile it and compare the program with the machine's figures."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from data.mixed import Mixed, count_positions, split_objective
from models.config.base import ImageConfig
from pretrain.mesh.sharding import MESH_AXES, find_dimension_names, format_path, make_mesh
from pretrain.phases import name_place, resolve_phases
from pretrain.plan.collectives import Collective
from pretrain.plan.compile import CompiledProgram, compile_score, compile_update
from pretrain.plan.floor import compute_floor, count_gradient_bytes
from pretrain.plan.hlo import HloModule
from pretrain.plan.roofline import compute_roofline
from pretrain.plan.work import Work, count_work
from pretrain.training import flops
from pretrain.training.memory.memory_estimate import count_held_bytes
from pretrain.training.optimizers import make_frozen_test
from pretrain.training.optimizers.muon import SCOPE as MUON_SCOPE
from pretrain.training.phase_programs import check_batches, find_shapes, make_fitting_programs
from pretrain.training.program import Program, check_batch, make_program

# What grows with the number of steps.
TOTALS = ("days_bound", "chip_hours_bound", "cost_bound")

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.plan.topology import Machine


def plan_run(
    run: Run,
    machine: Machine,
    price: float | None = None,
    evaluation: bool = True,
    quick: bool = False,
    compile_step: Callable[..., CompiledProgram] = compile_update,
) -> dict[str, Any]:
    """Return what a run needs on a machine and the rates that it can reach there, as JSON.

    Args:
      compile_step: (run, mesh, program, quick) -> the compiled training step.
    """
    mesh = make_mesh(run.mesh, machine.devices)
    check_batch(run, mesh)
    program = make_program(run, mesh)
    update = compile_step(run, mesh, program, quick)
    score = compile_score(run, mesh, program, quick) if evaluation and update.fits else None
    tokens = count_positions(run.data.objective, run.data.batch_size)
    facts = {
        "machine": machine.name,
        "kind": machine.device_kind,
        "chips": mesh.size // (machine.chip.cores if machine.chip else 1),
        "slices": machine.num_slices,
        "mesh": dict(mesh.shape),
        "microbatches": run.train.microbatches,
        "remat": run.model.remat,
        "quick": quick,
        "fits": update.fits and (score is None or score.fits),
        "seconds_to_compile": round(update.seconds + (score.seconds if score else 0), 1),
        "unit": run.data.objective.unit,
        "tokens_per_step": tokens,
        "bytes_per_chip": count_bytes_per_chip(program, update, machine),
        "evaluation_peak_bytes": score.memory_sizes["peak"]
        if score and score.memory_sizes
        else None,
        "attention": program.attention,
        "exchange": program.exchange,
        "warnings": [*update.warnings, *(score.warnings if score else ())],
    }
    facts |= count_step(run, machine, mesh, program, update, tokens, price)
    if has_published_figures(machine):
        facts |= describe_floor(run, machine, mesh, program, facts)
    return facts


def plan_phases(run: Run, machine: Machine, **options: Any) -> dict[str, Any]:
    """Return `plan_run` of each phase or stair as `phases`, and steps and times of all together.

    Phases of equal shapes are compiled once.

    Args:
      options: as of `plan_run`.
    """
    mesh = make_mesh(run.mesh, machine.devices)
    check_batches(run, mesh)
    plans: dict[Run, dict[str, Any]] = {}
    phases = []
    for phase, _ in make_fitting_programs(resolve_phases(run), mesh):
        shapes = find_shapes(phase.run)
        if shapes not in plans:
            with name_place(phase.place):
                plans[shapes] = plan_run(phase.run, machine, **options)
        facts = plans[shapes]
        share = phase.steps / facts["steps"] if "steps" in facts else 1
        own = {name: facts[name] * share for name in TOTALS if facts.get(name) is not None}
        own |= {"name": phase.name, "changes": list(phase.changes), "steps": phase.steps}
        phases.append(facts | own)
    totals = {
        name: sum(phase[name] for phase in phases)
        for name in ("steps", *TOTALS)
        if all(phase.get(name) is not None for phase in phases)
    }
    return {"phases": phases, "fits": all(phase["fits"] for phase in phases)} | totals


def count_step(
    run: Run,
    machine: Machine,
    mesh: jax.sharding.Mesh,
    program: Program,
    update: CompiledProgram,
    tokens: int,
    price: float | None,
) -> dict[str, Any]:
    """Return the plan's entries about what a step computes, moves and sends, and its bounds."""
    needed = flops.count_step_flops(run)
    jaxpr = program.train_step.trace(program.describe_state(), program.batch).jaxpr
    computed = flops.count_flops(jaxpr)
    facts: dict[str, Any] = {
        "flops_per_step": needed.all_pairs,
        "visible_flops_per_step": needed.visible_pairs,
        "flops_computed": computed,
        "flops_6nd": estimate_6nd(program, run),
    }
    if update.text is None:
        return facts
    work = count_work(HloModule(update.text), jaxpr, mesh, machine)
    facts["hbm_bytes_per_step"] = work.memory_bytes
    facts |= describe_exchanges(work.exchanges, program, mesh)
    return facts | compute_bounds(run, machine, mesh, needed, computed, work, tokens, price)


def describe_floor(
    run: Run, machine: Machine, mesh: jax.sharding.Mesh, program: Program, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the plan's entries about the floor of a step and its share of the bound."""
    gradients, frozen = count_gradient_bytes(
        program, run.train.compute_dtype, make_frozen_test(run)
    )
    held, visible = facts["bytes_per_chip"], facts["visible_flops_per_step"]
    floor = compute_floor(visible, held, gradients, mesh, machine, frozen)
    bound = facts.get("step_seconds_bound")
    return {
        "floor": dataclasses.asdict(floor),
        "floor_share": floor.seconds / bound if bound else None,
    }


def count_bytes_per_chip(
    program: Program, update: CompiledProgram, machine: Machine
) -> dict[str, float | None]:
    """Return the bytes on each device by use.

    Returns:
      {parameters, optimizer, batch, temporary, peak, limit, headroom}. The first three follow from
      the shardings, `peak` is the compiler's, and `temporary` is the rest of the peak. The
      compiler's own size of temporary buffers counts all buffers, used at any time: it exceeds
      the peak, or is 0.
    """
    sizes = count_held_bytes(program.abstract_state, program.state_shardings, program.batch)
    held = sum(sizes.values())
    peak = update.memory_sizes["peak"] if update.memory_sizes is not None else update.needed_bytes
    limit = machine.family.usable_bytes if machine.family else None
    return {
        **sizes,
        "temporary": None if update.memory_sizes is None or peak is None else peak - held,
        "peak": peak,
        "limit": limit,
        "headroom": None if peak is None or limit is None else limit - peak,
    }


def estimate_6nd(program: Program, run: Run) -> int:
    """Return the usual estimate of a step's FLOPs: 6 for each matmul weight and each position.

    The matmuls of attention scores are not included. A decoder's weights apply to the targets,
    a language model head's (and its table's) to the predicted positions, BERT's other
    heads' and a classifier's to one position a row.
    """
    objective, size = run.data.objective, run.data.batch_size
    num_rows = objective.count_part_rows(size) if isinstance(objective, Mixed) else {"": size}
    read = {"L": run.model.num_positions} if isinstance(run.model, ImageConfig) else {}
    return sum(
        6 * num_rows[name] * count_applied_weights(program, component.axis_sizes() | read)
        for name, component in split_objective(objective).items()
    )


def count_applied_weights(program: Program, axis_sizes: Mapping[str, int]) -> int:
    """Return the sum over the positions of a row of the matmul weights applied to each.

    Args:
      axis_sizes: axis letters -> sizes of a row: L inputs, T targets, P predictions.
    """
    predicted = axis_sizes.get("T") or axis_sizes.get("P") or axis_sizes["L"]
    positions_of = {"decoder": predicted, "word": predicted, "head": predicted, "next": 1}
    positions_of |= {"classifier": 1, "distilled_classifier": 1}
    total, has_head, tables = 0, False, {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract_state.params):
        path, size = format_path(keys), math.prod(leaf.shape)
        name = path.rpartition("/")[2]
        has_head = has_head or path.startswith("head/")
        if name == "embedding":
            tables[path] = size
        elif name == "kernel":
            default = 1 if "/pooler/" in path else axis_sizes["L"]
            total += size * positions_of.get(path.split("/")[0], default)
    if not has_head:  # the embedding table is the output layer too
        total += sum(size for path, size in tables.items() if "words/" in path) * predicted
    return total


def describe_exchanges(
    exchanges: Sequence[Collective], program: Program, mesh: jax.sharding.Mesh
) -> dict[str, Any]:
    """Return the plan's entries about the collectives of a step."""
    sent_bytes = sum(exchange.sent_bytes * exchange.count for exchange in exchanges)
    return {
        "interconnect_bytes_per_step": sent_bytes,
        "muon_bytes_per_step": count_muon_bytes(exchanges),
        "collectives": [describe_collective(exchange) for exchange in exchanges],
        "gathered_against_the_rules": find_unexpected_gathers(exchanges, program, mesh),
    }


def count_muon_bytes(exchanges: Sequence[Collective]) -> float:
    """Return the bytes that each chip sends in a step because Muon needs whole matrices."""
    return sum(
        exchange.sent_bytes * exchange.count
        for exchange in exchanges
        if re.search(rf"\b{MUON_SCOPE}/", exchange.source)
    )


def describe_collective(collective: Collective) -> dict[str, Any]:
    """Return a collective as a row of the plan's JSON."""
    fields = ("kind", "dtype", "shape", "bytes", "axes", "count", "overlapped", "source")
    return {name: getattr(collective, name) for name in fields} | {
        "devices": len(collective.group),
        "sent_bytes": collective.sent_bytes * collective.count,
    }


def find_unexpected_gathers(
    exchanges: Sequence[Collective], program: Program, mesh: jax.sharding.Mesh
) -> list[str]:
    """Return the parameters that the sharding rules split over `model` but the program gathers."""
    paths_by_shape = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract_state.params):
        path = format_path(keys)
        dims = find_dimension_names(path, leaf.shape)
        if mesh.shape["model"] > 1 and any(MESH_AXES[dim] == "model" for dim in dims):
            shape = leaf.shape[1:] if "layers" in path.split("/") else leaf.shape
            paths_by_shape.setdefault(tuple(sorted(size for size in shape if size > 1)), path)
    paths = set()
    for exchange in exchanges:
        shape = tuple(sorted(size for size in exchange.shape if size > 1))
        if exchange.kind == "all-gather" and "model" in exchange.axes and shape in paths_by_shape:
            paths.add(paths_by_shape[shape])
    return sorted(paths)


def has_published_figures(machine: Machine) -> bool:
    """Return whether the figures that a bound needs are published for the machine's chip."""
    chip = machine.chip
    return bool(chip and chip.link and (machine.num_slices == 1 or chip.network))


def compute_bounds(
    run: Run,
    machine: Machine,
    mesh: jax.sharding.Mesh,
    needed_flops: flops.StepFlops,
    program_flops: int,
    work: Work,
    tokens: int,
    price: float | None,
) -> dict[str, Any]:
    """Return the times and rates at the roofline; None where the chip's figures are unpublished.

    Args:
      needed_flops: FLOPs that the model needs in a step; MFU counts these.
      program_flops: FLOPs that the program computes in a step, including recomputation; HFU counts
        these.
    """
    chip = machine.chip
    if chip is None or not has_published_figures(machine):
        names = ("step_seconds_bound", "mfu_bound", "visible_mfu_bound", "hfu_bound")
        return dict.fromkeys(names)
    roof = compute_roofline(*work, mesh, machine)
    seconds = roof.bound_seconds
    hours = seconds * run.train.last_step / 3600
    chip_hours = hours * mesh.size / chip.cores
    peak_flops = seconds * chip.flops * mesh.size
    facts = {
        "roofline": dataclasses.asdict(roof) | {"by": roof.bottleneck},
        "step_seconds_bound": seconds,
        "mfu_bound": needed_flops.all_pairs / peak_flops,
        "visible_mfu_bound": needed_flops.visible_pairs / peak_flops,
        "hfu_bound": program_flops / peak_flops,
        "tokens_per_second_bound": tokens / seconds,
        "steps": run.train.last_step,
        "days_bound": hours / 24,
        "chip_hours_bound": chip_hours,
    }
    return facts | ({"cost_bound": chip_hours * price} if price is not None else {})
