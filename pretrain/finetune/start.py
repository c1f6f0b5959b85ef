"""The run that a fine-tuning begins: its configuration, its first parameters, its folder."""

import dataclasses
import os

from data.config import Data
from pretrain.config import Run, override, validate
from pretrain.convert import family_in
from pretrain.schema import Checkpoint, Evaluate, Train


def make_run(args, task, examples, pretrained):
    """The run that the command line asks for: what it does not say is as BERT's authors fine-tuned (Devlin et al. 2018, appendix A.3)."""
    model = examples.model(pretrained)
    store = os.path.join(args.workdir, "store")
    asked = override(
        Run(
            model=model,
            data=Data(store=store, objective=examples.objective(model)),
            optimizer=family_in(model).optimizer,
            train=Train(compute_dtype=pretrained.run.train.compute_dtype),
            evaluate=Evaluate(metrics=getattr(examples, "metrics", task.metrics)),
            checkpoint=Checkpoint(keep=1),
        ),
        args.overrides,
    )
    validate(asked)
    if not asked.evaluate.every:
        raise ValueError(
            "evaluate.every=0 leaves the held-out part out, by which the best step is chosen; every epoch is usual"
        )
    given = {word.partition("=")[0] for word in args.overrides}
    several = getattr(examples, "rows", None)
    rows = (
        several(asked.data.objective, pretrained.vocabulary)
        if several
        else len(examples.parts["train"])
    )
    epoch = -(-rows // asked.data.batch_size)
    steps = asked.train.steps if "train.steps" in given else max(1, round(args.epochs * epoch))
    every = asked.evaluate.every if "evaluate.every" in given else epoch
    usual = {
        "train.steps": steps,
        "optimizer.warmup_steps": steps // 10,
        "evaluate.every": every,
        "checkpoint.every": every,
    }
    usual["checkpoint.best"] = (*asked.evaluate.metrics, "loss")[0]
    run = override(asked, [f"{key}={value}" for key, value in usual.items() if key not in given])
    validate(run)
    return run


def prepare_workdir(workdir, run, pretrained, args, examples):
    """Make the workdir and its store, unless they are there. Raises ValueError where the store is one of other examples, or another folder."""
    from data.examples.example_store import ExampleStore
    from pretrain.training.new_workdir import start_workdir

    if not os.path.exists(os.path.join(workdir, "config.json")):
        params, new = make_initial_params(run, pretrained, args.fresh)
        folder = os.path.basename(os.path.abspath(pretrained.workdir))
        origin = {
            "folder": folder,
            "pretrained_step": pretrained.step,
            "task": args.task,
            "fresh": new,
        }
        start_workdir(workdir, run, params, pretrained.vocabulary, origin)
        of = (
            "at random"
            if args.fresh == "all"
            else f"as {pretrained.workdir} has it at step {pretrained.step:,}"
        )
        print(
            f"{workdir}: the model begins {of}; new: {'all of it' if args.fresh == 'all' else ', '.join(new) or 'nothing'}"
        )
    store = run.data.store
    if os.path.exists(store) and os.listdir(store):
        found = ExampleStore.open(store)
        if (
            found.digest != examples.digest()
            or found.encoding.fingerprint != pretrained.vocabulary.fingerprint
        ):
            raise ValueError(
                f"{store} holds other examples, or is of another vocabulary; name another --workdir"
            )
        return
    examples.write(store, pretrained.vocabulary)


def make_initial_params(run, pretrained, fresh):
    """(the parameters that a run begins with, the paths of those that were drawn at random)."""
    from functools import partial

    import jax

    from models import build
    from models.config.heads import HeadedConfig
    from models.layers.layer_layout import match_layout
    from pretrain.distributed.sharding import path_of
    from pretrain.training.state import init_params

    drawn = jax.device_get(
        jax.jit(partial(init_params, build(run.model), run.data.objective, run.train.seed))()
    )
    if fresh == "all":
        return drawn, [path_of(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(drawn)]
    if not isinstance(run.model, HeadedConfig):  # it learns another task as it is
        return match_layout(jax.device_get(pretrained.params), drawn), []
    source, before = jax.device_get(pretrained.params), pretrained.run.model
    if isinstance(before, HeadedConfig):
        if type(before) is type(run.model) and all(
            getattr(before, name) == getattr(run.model, name) for name in own_fields(before)
        ):
            return match_layout(source, drawn), []  # a head for the same goes on learning
        source = source["encoder"]
    paths = [path_of(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(drawn)]
    params = drawn | {
        "encoder": match_layout(source, drawn["encoder"])
    }  # without the heads that it was pretrained by
    return params, [path for path in paths if not path.startswith("encoder/")]


def own_fields(model):
    """The names of what a head has of its own, such as labels."""
    from models.config.heads import HeadedConfig

    common = {field.name for field in dataclasses.fields(HeadedConfig)}
    return [field.name for field in dataclasses.fields(model) if field.name not in common]
