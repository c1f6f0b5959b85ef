"""One run on one machine: compiled, measured from the program, put beside what the machine can do."""

import dataclasses
import math

import jax

from data.mixed import Mixed, count_positions, split_objective
from pretrain.distributed.sharding import AXES_OF, make_mesh, meaning, path_of
from pretrain.plan.collectives import collectives
from pretrain.plan.compile import compile_score, compile_update
from pretrain.plan.hlo import Module
from pretrain.plan.roofline import roofline
from pretrain.training import flops
from pretrain.training.program import check_batch, make_program


def plan(run, machine, price=None, evaluation=True, quick=False):
    """A JSON-like dict of what a `config.Run` needs and can reach on a `machine.Machine`; see `pretrain/cli/plan.py` for its words.

    price: of a chip and hour; evaluation: compile that as well; quick: spend less on the schedule. Raises ConfigError where run and machine do not fit each other.
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
    needed, programmed = (
        flops.of_step(run),
        flops.count(program.update.trace(program.state(), program.batch).jaxpr),
    )
    facts |= {
        "flops_per_step": needed,
        "flops_computed": programmed,
        "flops_6nd": estimate_6nd(program, run),
    }
    if update.fits:
        module = Module(update.text)
        exchanges = collectives(module, mesh)
        facts["hbm_bytes_per_step"] = module.memory_bytes()
        facts["interconnect_bytes_per_step"] = sum(one.sent * one.count for one in exchanges)
        facts["collectives"] = [described(one) for one in exchanges]
        facts["gathered_against_the_rules"] = gathered_against_the_rules(exchanges, program, mesh)
        facts |= reach(run, machine, mesh, needed, programmed, module, exchanges, tokens, price)
    return facts


def bytes_per_chip(program, update, machine):
    """{parameters, optimizer, batch, temporary, peak, limit, headroom}: the first three by their shardings, the rest by the compiler."""

    def held(tree, placed):
        shards = jax.tree.map(
            lambda leaf, place: math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize,
            tree,
            placed,
        )
        return sum(jax.tree.leaves(shards))

    batch = jax.tree.map(lambda leaf: leaf.sharding, program.batch)
    sizes = {
        "parameters": held(program.abstract.params, program.placed.params),
        "optimizer": held(program.abstract.optimizer, program.placed.optimizer),
        "batch": held(program.batch, batch),
        "temporary": update.bytes["temp"] if update.fits else None,
        "peak": update.bytes["peak"] if update.fits else update.needed,
        "limit": machine.family.usable if machine.family else None,
    }
    peak, limit = sizes["peak"], sizes["limit"]
    return sizes | {"headroom": None if peak is None or limit is None else limit - peak}


def estimate_6nd(program, run):
    """6 FLOPs for each weight of a matmul and each position that meets it: the usual estimate, without attention's own products.

    A decoder's weights meet targets, a word head's (and its table's) the positions that are predicted, BERT's other heads one a row.
    """
    objective, size = run.data.objective, run.data.batch_size
    rows = objective.rows(size) if isinstance(objective, Mixed) else {"": size}
    return sum(
        6 * rows[part] * weights_met(program, each.dims())
        for part, each in split_objective(objective).items()
    )


def weights_met(program, dims):
    """Return the sum, over the positions of a row of these dims, of the matmul weights that each meets."""
    predicted = dims.get("T") or dims.get("P") or dims["L"]
    total, tables = 0, {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract.params):
        path, size = path_of(keys), math.prod(leaf.shape)
        name = path.rpartition("/")[2]
        if name == "embedding":
            tables[path] = size
        elif name == "kernel":
            first = path.split("/")[0]
            total += size * {
                "decoder": predicted,
                "word": predicted,
                "head": predicted,
                "next": 1,
            }.get(first, 1 if "/pooler/" in path else dims["L"])
    if not any(
        path_of(keys).startswith("head/")
        for keys, _ in jax.tree_util.tree_leaves_with_path(program.abstract.params)
    ):
        total += (
            sum(size for path, size in tables.items() if "words/" in path) * predicted
        )  # the table is the output layer too
    return total


def described(one):
    """A `Collective` as a row of a table."""
    kept = ("kind", "dtype", "shape", "bytes", "axes", "count", "overlapped", "source")
    return {name: getattr(one, name) for name in kept} | {
        "devices": len(one.group),
        "sent_bytes": one.sent * one.count,
    }


def gathered_against_the_rules(exchanges, program, mesh):
    """Paths of parameters that are split over `model` by the table, and that the program puts together over it all the same."""
    whole = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(program.abstract.params):
        path = path_of(keys)
        dims = meaning(path, leaf.shape)
        if mesh.shape["model"] > 1 and any(AXES_OF[dim] == "model" for dim in dims):
            sizes = leaf.shape[1:] if "layers" in path.split("/") else leaf.shape
            whole.setdefault(tuple(sorted(size for size in sizes if size > 1)), path)
    found = []
    for one in exchanges:
        sizes = tuple(sorted(size for size in one.shape if size > 1))
        if one.kind == "all-gather" and "model" in one.axes and sizes in whole:
            found.append(whole[sizes])
    return sorted(set(found))


def reach(run, machine, mesh, needed, programmed, module, exchanges, tokens, price):
    """Times and rates at the roofline; nothing where the chip's figures are not published."""
    if (
        not machine.chip
        or not machine.chip.link
        or (machine.slices > 1 and not machine.chip.network)
    ):
        return {"step_seconds_bound": None, "mfu_bound": None}
    roof = roofline(programmed, module.memory_bytes(), exchanges, mesh, machine)
    seconds = roof.bound
    hours = seconds * run.train.end / 3600
    facts = {
        "roofline": dataclasses.asdict(roof) | {"by": roof.by},
        "step_seconds_bound": seconds,
        "mfu_bound": needed / mesh.size / machine.chip.flops / seconds,
        "tokens_per_second_bound": tokens / seconds,
        "steps": run.train.end,
        "days_bound": hours / 24,
        "chip_hours_bound": hours * mesh.size / machine.chip.cores,
    }
    return facts | ({"cost_bound": facts["chip_hours_bound"] * price} if price is not None else {})
