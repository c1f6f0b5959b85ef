"""describe CONFIG: the recipe, the resolved configuration and the cost of a run.

describe --list: the configurations by family. describe --fields: the meaning of every key.
describe --members: what an objective declares.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from data.corpus.json_lines import format_json
from pretrain.api.store_vocabulary import follow_store
from pretrain.cli.field_pages import write_pages
from pretrain.cli.generated_page import update_page
from pretrain.cli.member_table import MARKER as MEMBERS
from pretrain.cli.member_table import format_members, print_members
from pretrain.cli.recipes import MARKER, format_list, format_page, group_recipes, print_recipe
from pretrain.config import Run, find_file, load, to_json
from pretrain.settings.fields import (
    format_notes,
    format_tree,
    list_field_notes,
    list_nodes,
    list_sections,
)
from pretrain.settings.overrides import ConfigError
from pretrain.settings.verb_options import CONFIG_HELP
from pretrain.workdir.workdir import Workdir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `describe` to a parser."""
    parser.add_argument(
        "config", nargs="?", help=f"{CONFIG_HELP}; optional with --fields, none with --list"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. train.steps=100 model.depth=6",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument(
        "--list", action="store_true", help="list the configurations by family, a line each"
    )
    parser.add_argument(
        "--fields",
        action="store_true",
        help="list every key with its type, default, unit and meaning; with CONFIG, only the keys "
        "of that configuration",
    )
    parser.add_argument(
        "--members",
        action="store_true",
        help="list what a new objective may declare, with defaults and meanings",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="with --list: write all recipes to this Markdown page; with --fields: write an index "
        "to this page, and the fields to pages in a folder of its name; with --members: write the "
        "table to this page",
    )


def run(args: argparse.Namespace) -> int:
    """Print the configuration and its cost, all names, or the meaning of the keys; return 0."""
    if args.page and not (args.fields or args.list or args.members):
        raise ConfigError("--page writes what --list, --fields or --members list; add one of them")
    if args.members:
        return list_members(args)
    if args.list:
        return print_list(args)
    if args.fields:
        return print_fields(args)
    if not args.config:
        raise ConfigError("name a configuration (--list shows all), or add --fields")
    run = follow_store(load(args.config, args.overrides), args.config, args.overrides)
    facts = describe_run(run)
    if args.json:
        print(format_json(facts | {"run": json.loads(to_json(run))}))
        return 0
    print_recipe(find_file(args.config))
    print(f"{args.config}: {type(run.model).__name__}, {run.data.objective.name}")
    if origin := find_origin(args.config):
        print(f"  begun with {origin}")
    print(f"  {'parameters':<28}{facts['parameters']:>20,}")
    for module, size in facts["parameters_by_part"].items():
        print(f"    {module:<26}{size:>20,}")
    if facts["teacher_parameters"]:
        print(f"  {'parameters of the teacher':<28}{facts['teacher_parameters']:>20,}")
    if facts["frozen_parameters"] > facts["teacher_parameters"]:
        for name in ("trained", "frozen"):
            print(f"  {name:<28}{facts[f'{name}_parameters']:>20,}")
    names = ["tokens_per_step", "flops_per_token", "flops_per_step", "steps", "tokens", "flops"]
    unit = run.data.objective.unit
    if "phases" in facts:
        names = names[3:]
    elif facts["visible_flops_per_step"] != facts["flops_per_step"]:
        names.insert(3, "visible_flops_per_step")
    for name in names:
        number = f"{facts[name]:>20,.4g}" if facts[name] >= 1e9 else f"{facts[name]:>20,}"
        title = name.replace("tokens", unit).replace("token", unit[:-1]).replace("_", " ")
        print(f"  {title:<28}{number}")
    if "phases" in facts:
        print("\n" + "\n".join(format_phases(facts["phases"], unit)))
    print("\n" + "\n".join(format_tree(run)))
    print("\n`describe --fields` and docs/configuration.md explain each key.")
    return 0


def find_origin(config: str) -> str:
    """Return what the run of a workdir's config.json began with; "" for other configurations."""
    path = find_file(config)
    return Workdir.open(str(path.parent)).describe_origin() if path.name == "config.json" else ""


def format_phases(phases: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    """Return the lines of a table of phases: what each reads, computes and changes."""
    head = ("phase", "first step", "steps", f"{unit}/step", "rows", unit, "FLOPs", "settings")
    rows: list[tuple[str, ...]] = [head]
    for phase in phases:
        numbers = [phase["start"] + 1, phase["steps"], phase["tokens_per_step"]]
        numbers += [phase["rows"], phase["tokens"]]
        texts = [f"{number:,}" for number in numbers] + [f"{phase['flops']:,.4g}"]
        rows.append((phase["name"] or "run", *texts, " ".join(phase["overrides"])))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        f"  {row[0]:<{widths[0]}}  "
        + "  ".join(f"{text:>{width}}" for text, width in zip(row[1:-1], widths[1:-1]))
        + f"  {row[-1]}"
        for row in rows
    ]
    return [line.rstrip() for line in lines]


def print_list(args: argparse.Namespace) -> int:
    """Print the configurations by family, or write their recipes to a page; return 0."""
    if args.config or args.fields:
        extra = args.config or "--fields"
        raise ConfigError(f"--list lists every configuration: leave {extra} out, or --list")
    groups = group_recipes()
    if args.page:
        update_page(pathlib.Path(args.page), MARKER, format_page(groups))
    elif args.json:
        rows = [
            {"name": recipe.name, "family": title, "summary": recipe.summary}
            for title, recipes in groups.items()
            for recipe in recipes
        ]
        print(format_json(rows))
    else:
        print(format_list(groups))
    return 0


def list_members(args: argparse.Namespace) -> int:
    """Print what an objective declares, or write it to a page; return 0."""
    extras = {"--fields": args.fields, "--list": args.list, "--json": args.json}
    if extra := args.config or next((flag for flag, given in extras.items() if given), ""):
        raise ConfigError(f"--members lists what an objective declares: leave {extra} out")
    if args.page:
        update_page(pathlib.Path(args.page), MEMBERS, format_members())
    else:
        print_members()
    return 0


# ---- the fields --------------------------------------------------------------


def print_fields(args: argparse.Namespace) -> int:
    """Print the meaning of every key of a configuration, or of all sections; return 0.

    With --page they are written as Markdown pages instead.
    """
    if args.page and args.config:
        raise ConfigError(f"--page writes the keys of all sections: leave {args.config} out")
    if args.page:
        write_pages(pathlib.Path(args.page))
        return 0
    sections = list_nodes(load(args.config, args.overrides)) if args.config else list_sections(Run)
    notes = {kind: list_field_notes(kind, places) for kind, places in sections.items()}
    if args.json:
        print(format_json([note._asdict() for group in notes.values() for note in group]))
    else:
        for kind, group in notes.items():
            print("\n".join([f"{kind.__name__}", *format_notes(group), ""]))
    return 0


# ---- the cost of a run -------------------------------------------------------


def describe_run(run: Run) -> dict[str, Any]:
    """Return the number of parameters, tokens and FLOPs of a run.

    Parameters are counted from abstract shapes, FLOPs from the jaxpr of the training step.

    Returns:
      `parameters`; `parameters_by_part`, by the first two names of a parameter's path;
      `teacher_parameters`, which are in neither; `trained_parameters` and `frozen_parameters`: of
      all these, the ones that the optimizer updates, and the others;
      `tokens_per_step`, the positions of a batch of full rows; `flops_per_token` and
      `flops_per_step` of matmuls in the forward and the backward pass, without
      rematerialization, as the papers count them; `visible_flops_per_step`, the same without the
      pairs that causal masks and windows hide; `steps`; `tokens` and `flops` of the whole run;
      `phases`, with the same of each phase or stair, if the run has any. Then the figures of a step
      are of the first one.
    """
    from functools import partial

    import jax

    from data.mixed import count_positions
    from models import build
    from models.config.base import TEACHER
    from pretrain.mesh.sharding import format_path
    from pretrain.phases import resolve_phases
    from pretrain.training import flops as flop_counts
    from pretrain.training.optimizers.factors import add_factors
    from pretrain.training.optimizers.frozen import count_trained
    from pretrain.training.state import init_params

    params = jax.eval_shape(partial(init_params, build(run.model), run.data.objective, 0))
    if run.train.lora_rank:
        params = jax.eval_shape(partial(add_factors, run), params)
    sizes, teacher = {}, 0
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        path = format_path(keys)
        if path.startswith(TEACHER):
            teacher += math.prod(leaf.shape)
            continue
        module = "/".join(path.split("/")[:2])
        sizes[module] = sizes.get(module, 0) + math.prod(leaf.shape)
    trained = count_trained(run, params)
    first = resolve_phases(run)[0].run
    tokens = count_positions(first.data.objective, first.data.batch_size)
    flops, visible_flops = flop_counts.count_step_flops(first)
    counts = count_phases(run)
    return {
        "parameters": sum(sizes.values()),
        "parameters_by_part": sizes,
        "teacher_parameters": teacher,
        "trained_parameters": trained,
        "frozen_parameters": sum(sizes.values()) + teacher - trained,
        "tokens_per_step": tokens,
        "flops_per_token": round(flops / tokens),
        "flops_per_step": flops,
        "visible_flops_per_step": visible_flops,
        "steps": run.train.last_step,
        "tokens": sum(count["tokens"] for count in counts),
        "flops": sum(count["flops"] for count in counts),
    } | ({"phases": counts} if run.phases or len(counts) > 1 else {})


def count_phases(run: Run) -> list[dict[str, Any]]:
    """Return steps, rows, tokens, FLOPs and changed settings of each phase or stair of a run.

    Raises:
      ConfigError: a phase changes a size of the model, or does not fit it.
    """
    from pretrain.phases import resolve_phases
    from pretrain.training.flops import count_phase_flops
    from pretrain.training.phase_programs import check_states

    counts, phases = [], resolve_phases(run)
    if len(phases) > 1:
        check_states(phases)
    overrides = {phase.name: phase.overrides for phase in run.phases}
    for phase, flops in zip(phases, count_phase_flops([phase.run for phase in phases])):
        steps = max(min(phase.stop, run.train.last_step) - phase.start, 0)
        counts.append(
            {
                "name": phase.name,
                "start": phase.start,
                "steps": steps,
                "tokens_per_step": phase.tokens_per_step,
                "rows": steps * phase.run.data.batch_size,
                "tokens": steps * phase.tokens_per_step,
                "flops": steps * flops.all_pairs,
                "overrides": [*overrides.get(phase.name, ()), *phase.changes],
            }
        )
    return counts
