"""Plan one run on one machine: compile it and compare the program with the machine's figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from data.mixed import Mixed, count_positions, split_objective
from pretrain.distributed.sharding import AXES_OF, make_mesh, meaning, path_of
from pretrain.plan.collectives import Collective, collectives
from pretrain.plan.compile import Compiled, compile_score, compile_update
from pretrain.plan.hlo import Module
from pretrain.plan.roofline import roofline
from pretrain.training import flops
from pretrain.training.program import Program, check_batch, make_program

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.plan.topology import Machine


def plan(
    run: Run,
    machine: Machine,
    price: float | None = None,
    evaluation: bool = True,
    quick: bool = False,
) -> dict[str, Any]:
    """Return what a run needs on a machine and the rates that it can reach there, as JSON.

    Args:
      price: price of a chip hour.
      evaluation: also compile the evaluation.
      quick: compile with less optimization of the schedule.

    Raises:
      ConfigError: if the run does not divide over the machine's devices.
    """
    mesh = make_mesh(run.mesh, machine.devices)
    check_batch(run, mesh)
    program = make_program(run, mesh)
    update = compile_update(run, mesh, program, quick)
    score = compile_score(run, mesh, program, quick) if evaluation and update.fits else None
    tokens = count_positions(run.data.objective, run.data.batch_size)
    facts = {
        "machine": machine.name,
        "kind": machine.kind,
        "chips": mesh.size // (machine.chip.cores if machine.chip else 1),
        "slices": machine.slices,
        "mesh": dict(mesh.shape),
        "microbatches": run.train.microbatches,
        "remat": run.model.remat,
        "quick": quick,
        "fits": update.fits and (score is None or score.fits),
        "seconds_to_compile": round(update.seconds + (score.seconds if score else 0), 1),
        "tokens_per_step": tokens,
        "bytes_per_chip": bytes_per_chip(program, update, machine),
        "evaluation_peak_bytes": score.bytes["peak"] if score and score.bytes else None,
        "attention": program.attention,
        "warnings": [*update.warnings, *(score.warnings if score else ())],
    }
    model_flops = flops.of_step(run)
    program_flops = flops.count(program.update.trace(program.state(), program.batch).jaxpr)
    facts |= {
        "flops_per_step": model_flops,
        "flops_computed": program_flops,
        "flops_6nd": estimate_6nd(program, run),
    }
    if update.text is not None:
        module = Module(update.text)
        exchanges = collectives(module, mesh)
        facts["hbm_bytes_per_step"] = module.memory_bytes()
        facts["interconnect_bytes_per_step"] = sum(
            exchange.sent * exchange.count for exchange in exchanges
        )
        facts["collectives"] = [described(exchange) for exchange in exchanges]
        facts["gathered_against_the_rules"] = gathered_against_the_rules(exchanges, program, mesh)
        facts |= reach(
            run, machine, mesh, model_flops, program_flops, module, exchanges, tokens, price
        )
    return facts


def bytes_per_chip(program: Program, update: Compiled, machine: Machine) -> dict[str, float | None]:
    """Return the bytes on each device by use.

    Returns:
      {parameters, optimizer, batch, temporary, peak, limit, headroom}. The first three follow from
      the shardings, `temporary` and `peak` are the compiler's.
    """

    def held(tree: Any, shardings: Any) -> int:
        shards = jax.tree.map(
            lambda leaf, sharding: (
                math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            ),
            tree,
            shardings,
        )
        return sum(jax.tree.leaves(shards))

    batch_shardings = jax.tree.map(lambda leaf: leaf.sharding, program.batch)
    sizes = {
        "parameters": held(program.abstract.params, program.placed.params),
        "optimizer": held(program.abstract.optimizer, program.placed.optimizer),
        "batch": held(program.batch, batch_shardings),
        "temporary": update.bytes["temp"] if update.bytes is not None else None,
        "peak": update.bytes["peak"] if update.bytes is not None else update.needed,
        "limit": machine.family.usable if machine.family else None,
    }
    peak, limit = sizes["peak"], sizes["limit"]
    return sizes | {"headroom": None if peak is None or limit is None else limit - peak}


def estimate_6nd(program: Program, run: Run) -> int:
    """Return the usual estimate of a step's FLOPs: 6 for each matmul weight and each position.

    The matmuls of attention scores are not included. A decoder's weights apply to the targets,
    those of a language model head (and its table) to the predicted positions, those of BERT's
    other heads to one position a row.
    """
    objective, size = run.data.objective, run.data.batch_size
    rows = objective.rows(size) if isinstance(objective, Mixed) else {"": size}
    return sum(
        6 * rows[name] * weights_met(program, component.dims())
        for name, component in split_objective(objective).items()
    )


def weights_met(program: Program, dims: Mapping[str, int]) -> int:
    """Return the sum over the positions of a row of the matmul weights applied to each.

    Args:
      axis_sizes: axis letters -> sizes of a row: L inputs, T targets, P predictions.
    """
    predicted = dims.get("T") or dims.get("P") or dims["L"]
    positions_of = {"decoder": predicted, "word": predicted, "head": predicted, "next": 1}
    total, has_head, tables = 0, False, {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract.params):
        path, size = path_of(keys), math.prod(leaf.shape)
        name = path.rpartition("/")[2]
        has_head = has_head or path.startswith("head/")
        if name == "embedding":
            tables[path] = size
        elif name == "kernel":
            default = 1 if "/pooler/" in path else dims["L"]
            total += size * positions_of.get(path.split("/")[0], default)
    if not has_head:  # the embedding table is the output layer too
        total += sum(size for path, size in tables.items() if "words/" in path) * predicted
    return total


def described(one: Collective) -> dict[str, Any]:
    """Return a collective as a row of the plan's JSON."""
    fields = ("kind", "dtype", "shape", "bytes", "axes", "count", "overlapped", "source")
    return {name: getattr(one, name) for name in fields} | {
        "devices": len(one.group),
        "sent_bytes": one.sent * one.count,
    }


def gathered_against_the_rules(
    exchanges: Sequence[Collective], program: Program, mesh: jax.sharding.Mesh
) -> list[str]:
    """Return the parameters that the sharding rules split over `model` but the program gathers."""
    paths_by_shape = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract.params):
        path = path_of(keys)
        dims = meaning(path, leaf.shape)
        if mesh.shape["model"] > 1 and any(AXES_OF[dim] == "model" for dim in dims):
            shape = leaf.shape[1:] if "layers" in path.split("/") else leaf.shape
            paths_by_shape.setdefault(tuple(sorted(size for size in shape if size > 1)), path)
    paths = set()
    for exchange in exchanges:
        shape = tuple(sorted(size for size in exchange.shape if size > 1))
        if exchange.kind == "all-gather" and "model" in exchange.axes and shape in paths_by_shape:
            paths.add(paths_by_shape[shape])
    return sorted(paths)


def reach(
    run: Run,
    machine: Machine,
    mesh: jax.sharding.Mesh,
    needed: int,
    programmed: int,
    module: Module,
    exchanges: Sequence[Collective],
    tokens: int,
    price: float | None,
) -> dict[str, Any]:
    """Return the times and rates at the roofline; None where the chip's figures are unpublished.

    Args:
      model_flops: FLOPs that the model needs in a step; MFU counts these.
      program_flops: FLOPs that the program computes in a step, including recomputation.
      tokens: positions of a batch.
      price: price of a chip hour, for the cost of the whole run.
    """
    chip = machine.chip
    if not chip or not chip.link or (machine.slices > 1 and not chip.network):
        return {"step_seconds_bound": None, "mfu_bound": None}
    roof = roofline(programmed, module.memory_bytes(), exchanges, mesh, machine)
    seconds = roof.bound
    hours = seconds * run.train.end / 3600
    chip_hours = hours * mesh.size / chip.cores
    facts = {
        "roofline": dataclasses.asdict(roof) | {"by": roof.by},
        "step_seconds_bound": seconds,
        "mfu_bound": needed / mesh.size / chip.flops / seconds,
        "tokens_per_second_bound": tokens / seconds,
        "steps": run.train.end,
        "days_bound": hours / 24,
        "chip_hours_bound": chip_hours,
    }
    return facts | ({"cost_bound": chip_hours * price} if price is not None else {})
