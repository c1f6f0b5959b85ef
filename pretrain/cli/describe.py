"""describe CONFIG: what a configuration costs, without computing any of it."""

import json
import math

from pretrain.config import load


def add_arguments(parser):
    parser.add_argument(
        "config", help="a name in configs/, a .py file like those, or a saved config.json"
    )
    parser.add_argument("overrides", nargs="*", metavar="path=value")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args):
    run = load(args.config, args.overrides)
    facts = describe(run)
    if args.json:
        from pretrain.config import to_json

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
    return 0


def describe(run):
    """{parameters, parameters_by_part, tokens_per_step, flops_per_token, ...}: counted from shapes and from the step's own program.

    Tokens are positions of a full row; FLOPs are those of matmuls, forwards and backwards, without recomputation.
    """
    from functools import partial

    import jax

    from models import build
    from pretrain.distributed.sharding import path_of
    from pretrain.training import flops as counted
    from pretrain.training.state import init_params

    params = jax.eval_shape(partial(init_params, build(run.model), run.data.objective, 0))
    parts = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = "/".join(path_of(keys).split("/")[:2])
        parts[part] = parts.get(part, 0) + math.prod(leaf.shape)
    dims = run.data.objective.dims()
    tokens = run.data.batch_size * (dims["L"] + dims.get("T", 0))
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
