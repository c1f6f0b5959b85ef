"""evaluate --workdir W: the newest checkpoint on every row of the held-out part."""

import dataclasses
import json


def add_arguments(parser):
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--step", type=int, help="a checkpoint's step; the newest good one unless given")
    parser.add_argument("--store", help="another token store than the run's, of the same vocabulary")
    parser.add_argument("--split", default="heldout", choices=("heldout", "train"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args):
    from data.pipeline import Stream
    from data.store import Store
    from data.tokenizers import load_vocabulary
    from etils import epath

    from pretrain import cluster

    cluster.start()
    import jax

    from models import build
    from pretrain.checkpoint import restore_params
    from pretrain.evaluate import make_evaluator
    from pretrain.losses import LOSSES
    from pretrain.sharding import constrain, make_mesh, spec
    from pretrain.typed import ConfigError

    say = (lambda text: None) if args.json else print
    mesh_holder = {}

    def place(path, shape):
        return jax.sharding.NamedSharding(mesh_holder["mesh"], spec(path, shape, mesh_holder["mesh"]))

    config = _config(args.workdir)
    mesh = mesh_holder["mesh"] = make_mesh(config.mesh)
    config, step, params = restore_params(args.workdir, args.step, place, report=say)
    store = Store.open(args.store or config.data.store)
    trained = load_vocabulary(str(epath.Path(args.workdir) / "vocabulary"))
    if store.vocabulary.fingerprint != trained.fingerprint:
        raise ConfigError(f"{store.path} was prepared with another vocabulary than {args.workdir}; prepare it with --vocabulary {args.workdir}/vocabulary")
    stream = Stream(store, dataclasses.replace(config.data, rates=()), split=args.split, seed=config.train.seed)
    model = build(config.model, constrain=constrain(mesh))
    evaluate = make_evaluator(model, LOSSES[config.data.objective.name], mesh, compute=config.train.compute)
    with jax.set_mesh(mesh):
        scores = evaluate(params, stream)
    if args.json:
        print(json.dumps({"step": step, "store": str(store.path), "split": args.split, **scores}))
    else:
        print(f"step {step:,} on the {args.split} part of {store.path}, {scores['rows']:,} rows, {scores['targets']:,.0f} targets")
        for name, value in scores.items():
            if name not in ("rows", "targets"):
                print(f"  {name:<28}{value:.5g}")
    return 0


def _config(workdir):
    from etils import epath

    from pretrain.config import from_json

    path = epath.Path(workdir) / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{workdir}: not a workdir (it has no config.json); `train --workdir` and `import --workdir` make one")
    return from_json(path.read_text(), where=str(path))
