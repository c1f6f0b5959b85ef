"""The start of a fine-tuning: its configuration, its initial parameters and its workdir."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from data.config import Data
from pretrain.config import Run, override_run, validate_run
from pretrain.convert import find_model_family
from pretrain.finetune.labelled_task import CountsRows
from pretrain.schema import Checkpoint, Evaluate, Train

if TYPE_CHECKING:
    from pretrain.inference.trained import Trained


def make_run(args: argparse.Namespace, task: Any, examples: Any, pretrained: Trained) -> Run:
    """Return the configuration of a fine-tuning.

    What the command line does not set is as in BERT's fine-tuning (Devlin et al. 2018, appendix
    A.3).

    Args:
      args: the command line.
      task: the task, see pretrain/finetune/tasks.py.
      examples: the examples, see `labelled_task.TaskExamples`.
      pretrained: the pretrained model.
    """
    model = examples.make_model_config(pretrained)
    store = os.path.join(args.workdir, "store")
    requested = override_run(
        Run(
            model=model,
            data=Data(store=store, objective=examples.make_objective(model)),
            optimizer=find_model_family(model).optimizer,
            train=Train(compute_dtype=pretrained.run.train.compute_dtype),
            evaluate=Evaluate(metrics=getattr(examples, "metrics", task.metrics)),
            checkpoint=Checkpoint(keep=1),
        ),
        args.overrides,
    )
    validate_run(requested)
    if not requested.evaluate.every:
        raise ValueError(
            "evaluate.every=0 disables the evaluation by which the best step is selected; use at "
            "least 1 (default: once per epoch)"
        )
    given = {argument.partition("=")[0] for argument in args.overrides}
    rows = (
        examples.count_rows(requested.data.objective, pretrained.vocabulary)
        if isinstance(examples, CountsRows)
        else len(examples.parts["train"])
    )
    epoch = -(-rows // requested.data.batch_size)
    steps = requested.train.steps if "train.steps" in given else max(1, round(args.epochs * epoch))
    every = requested.evaluate.every if "evaluate.every" in given else epoch
    defaults = {
        "train.steps": steps,
        "optimizer.warmup_steps": steps // 10,
        "evaluate.every": every,
        "checkpoint.every": every,
        "checkpoint.best": (*requested.evaluate.metrics, "loss")[0],
    }
    run = override_run(
        requested, [f"{key}={value}" for key, value in defaults.items() if key not in given]
    )
    validate_run(run)
    return run


def prepare_workdir(
    workdir: str, run: Run, pretrained: Trained, args: argparse.Namespace, examples: Any
) -> None:
    """Make the workdir and its store unless they exist.

    Raises:
      ValueError: if an existing store has other examples or another vocabulary.
    """
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
        source = (
            "all parameters are initialized at random"
            if args.fresh == "all"
            else f"parameters are those of {pretrained.workdir} at step {pretrained.step:,}; "
            f"initialized at random: {', '.join(new) or 'none'}"
        )
        print(f"{workdir}: {source}")
    store: Any = run.data.store
    if os.path.exists(store) and os.listdir(store):
        found = ExampleStore.open(store)
        if (
            found.examples_digest != examples.digest_examples()
            or found.encoding.fingerprint != pretrained.vocabulary.fingerprint
        ):
            raise ValueError(
                f"{store} holds other examples or has another vocabulary; name another --workdir"
            )
        return
    examples.write_store(store, pretrained.vocabulary)


def make_initial_params(
    run: Run, pretrained: Trained, fresh: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the initial parameters of a run, and the paths of those initialized at random.

    Args:
      run: the configuration of the fine-tuning.
      pretrained: the pretrained model.
      fresh: "head" or "all": which parameters are initialized at random. With "head", a pretrained
        head that fits the run is used.
    """
    from functools import partial

    import jax

    from models import build
    from models.config.heads import HeadedConfig
    from models.layers.layer_layout import match_layout
    from pretrain.distributed.sharding import format_path
    from pretrain.training.state import init_params

    initial = jax.device_get(
        jax.jit(partial(init_params, build(run.model), run.data.objective, run.train.seed))()
    )
    paths = [format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(initial)]
    if fresh == "all":
        return initial, paths
    source, before = jax.device_get(pretrained.params), pretrained.run.model
    if not isinstance(run.model, HeadedConfig):  # a generative model has no head
        return match_layout(source, initial), []
    if isinstance(before, HeadedConfig):
        if type(before) is type(run.model) and all(
            getattr(before, name) == getattr(run.model, name) for name in list_own_fields(before)
        ):
            return match_layout(source, initial), []
        source = source["encoder"]
    # The heads of the pretraining are dropped.
    params = initial | {"encoder": match_layout(source, initial["encoder"])}
    return params, [path for path in paths if not path.startswith("encoder/")]


def list_own_fields(model: Any) -> list[str]:
    """Return the names of the fields that only a model's kind of head has, such as labels."""
    from models.config.heads import HeadedConfig

    common = {field.name for field in dataclasses.fields(HeadedConfig)}
    return [field.name for field in dataclasses.fields(model) if field.name not in common]
