"""evaluate --workdir W: the newest checkpoint on every row of the held-out part."""

import dataclasses
import json

from pretrain import cluster


def add_arguments(parser):
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--step", type=int, help="a checkpoint's step; the newest good one unless given")
    parser.add_argument("--store", help="another token store than the run's, of the same vocabulary")
    parser.add_argument("--split", default="heldout", choices=("heldout", "train"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    cluster.add_arguments(parser)


def run(args):
    cluster.start(args)
    import jax

    step, store, scores = evaluate(args.workdir, step=args.step, store=args.store, split=args.split)
    if jax.process_index():
        return 0  # all have the same scores; the first tells them
    if args.json:
        print(json.dumps({"step": step, "store": str(store), "split": args.split, **scores}))
        return 0
    print(f"step {step:,} on the {args.split} part of {store}: {scores['rows']:,} rows, {scores['targets']:,.0f} targets")
    for name, value in scores.items():
        if name not in ("rows", "targets"):
            print(f"  {name:<28}{value:.5g}")
    return 0


def evaluate(workdir, step=None, store=None, split="heldout"):
    """(step, the store's path, {name: mean}) of a checkpoint on one part of a token store."""
    import sys

    import jax

    from data.pipeline import Stream
    from data.store import Store
    from data.tokenizers import load_vocabulary
    from models import build
    from pretrain.checkpoint import read_run, restore_params
    from pretrain.evaluate import make_evaluator
    from pretrain.losses import LOSSES
    from pretrain.program import parts
    from pretrain.sharding import make_mesh, parameter_sharding
    from pretrain.typed import ConfigError

    run = read_run(workdir)
    opened = Store.open(store or run.data.store)
    trained = load_vocabulary(f"{workdir}/vocabulary")
    if opened.vocabulary.fingerprint != trained.fingerprint:
        raise ConfigError(
            f"{opened.path} was prepared with another vocabulary than that of {workdir}; "
            f"prepare it with --vocabulary {workdir}/vocabulary"
        )
    mesh = make_mesh(run.mesh)
    run, step, params = restore_params(
        workdir, step, lambda path, shape: parameter_sharding(path, shape, mesh), report=lambda text: print(text, file=sys.stderr)
    )
    data = dataclasses.replace(run.data, rates=()) if store else run.data
    stream = Stream(opened, data, split=split, seed=run.train.seed)
    model = build(run.model, **parts(mesh, []))
    evaluator = make_evaluator(model, LOSSES[run.data.objective.name], mesh, compute=run.train.compute)
    with jax.set_mesh(mesh):
        return step, opened.path, evaluator(params, stream)
