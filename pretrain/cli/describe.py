"""describe CONFIG: the whole resolved run and what it costs, without computing any of it; describe --fields: what every key means."""

import json
import math
import pathlib

from pretrain.config import Run, load, to_json
from pretrain.fields import (
    format_markdown,
    format_notes,
    format_tree,
    list_field_notes,
    list_nodes,
    list_sections,
)
from pretrain.overrides import ConfigError

MARKER = (
    "<!-- Below this line: python -m pretrain describe --fields --page docs/configuration.md -->"
)


def add_arguments(parser):
    parser.add_argument(
        "config",
        nargs="?",
        help="a name in configs/, a .py file like those, or a saved config.json; may be left out with --fields",
    )
    parser.add_argument("overrides", nargs="*", metavar="path=value")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument(
        "--fields",
        action="store_true",
        help="list every key with its type, default, unit and meaning; with CONFIG, the keys that it has",
    )
    parser.add_argument("--page", metavar="FILE", help="with --fields: write tables into this page")


def run(args):
    if args.page and not args.fields:
        raise ConfigError("--page writes the list of --fields; add --fields")
    if args.fields:
        return print_fields(args)
    if not args.config:
        raise ConfigError("name a configuration, or add --fields")
    run = load(args.config, args.overrides)
    facts = describe(run)
    if args.json:
        print(json.dumps(facts | {"run": json.loads(to_json(run))}))
        return 0
    print(f"{args.config}: {type(run.model).__name__}, {run.data.objective.name}")
    print(f"  {'parameters':<28}{facts['parameters']:>20,}")
    for part, size in facts["parameters_by_part"].items():
        print(f"    {part:<26}{size:>20,}")
    for name in (
        "tokens_per_step",
        "flops_per_token",
        "flops_per_step",
        "steps",
        "tokens",
        "flops",
    ):
        print(
            f"  {name.replace('_', ' '):<28}{facts[name]:>20,.4g}"
            if facts[name] >= 1e9
            else f"  {name.replace('_', ' '):<28}{facts[name]:>20,}"
        )
    print("\n" + "\n".join(format_tree(run)))
    print("\n`describe --fields` and docs/configuration.md say what each key means.")
    return 0


# ---- the fields --------------------------------------------------------------


def print_fields(args):
    """Print or write what every key means, of all sections or of those that a configuration has."""
    sections = list_nodes(load(args.config, args.overrides)) if args.config else list_sections(Run)
    notes = {kind: list_field_notes(kind, places) for kind, places in sections.items()}
    if args.page:
        update_page(pathlib.Path(args.page), render_page(sections, notes))
    elif args.json:
        print(json.dumps([note._asdict() for group in notes.values() for note in group]))
    else:
        for kind, group in notes.items():
            print("\n".join([f"{kind.__name__}", *format_notes(group), ""]))
    return 0


def render_page(sections, notes):
    """Return the tables of docs/configuration.md."""
    return "\n".join(
        line
        for kind, places in sections.items()
        for line in format_markdown(kind, places, notes[kind])
    )


def update_page(path, tables):
    """Replace what stands behind the marker of a page. Raises ConfigError for a page without it."""
    head, marker, _ = path.read_text().partition(MARKER)
    if not marker:
        raise ConfigError(f"{path} has no line {MARKER}")
    path.write_text(f"{head}{MARKER}\n\n{tables}")


# ---- what a run costs --------------------------------------------------------


def describe(run):
    """{parameters, parameters_by_part, tokens_per_step, flops_per_token, ...}: counted from shapes and from the step's own program.

    Tokens are positions of a full row; FLOPs are those of matmuls, forwards and backwards, without recomputation.
    """
    from functools import partial

    import jax

    from data.mixed import count_positions
    from models import build
    from pretrain.distributed.sharding import path_of
    from pretrain.training import flops as counted
    from pretrain.training.state import init_params

    params = jax.eval_shape(partial(init_params, build(run.model), run.data.objective, 0))
    parts = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = "/".join(path_of(keys).split("/")[:2])
        parts[part] = parts.get(part, 0) + math.prod(leaf.shape)
    tokens = count_positions(run.data.objective, run.data.batch_size)
    flops = counted.of_step(run)
    return {
        "parameters": sum(parts.values()),
        "parameters_by_part": parts,
        "tokens_per_step": tokens,
        "flops_per_token": round(flops / tokens),
        "flops_per_step": flops,
        "steps": run.train.end,
        "tokens": tokens * run.train.end,
        "flops": flops * run.train.end,
    }
