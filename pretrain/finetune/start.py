"""The start of a fine-tuning: its configuration, its initial parameters and its workdir."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from data.config import Data
from pretrain.config import Run, load, override_run, validate_run
from pretrain.convert import find_model_family
from pretrain.finetune.begin_adapter import (
    add_adapter,
    check_lora_settings,
    describe_adapter,
    read_lora_settings,
)
from pretrain.finetune.finetune_options import EPOCHS, EPOCHS_OF_NEW, FinetuneOptions
from pretrain.finetune.labelled_task import CountsRows, LabelledExamples
from pretrain.finetune.tasks import open_to_examples
from pretrain.settings import Checkpoint, Evaluate, Train
from pretrain.workdir.workdir import Workdir

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary
    from pretrain.workdir.trained import Trained

# The ends of the paths of the tables of word embeddings.
WORD_TABLES = ("token_embedding/embedding", "static_embedding/embedding")


@dataclasses.dataclass(frozen=True)
class NewModel:
    """A model before any training, with what `finetune` reads of a `Trained`.

    Attributes:
      vectors: {word: float32 [D]}, with which the word embeddings begin.
    """

    workdir: str
    run: Run
    vocabulary: Vocabulary
    vectors: dict[str, Any]
    step: int = 0
    params: dict[str, Any] = dataclasses.field(default_factory=dict)

    def read_origin(self) -> None:
        """Return None: it begins with no other model."""


def open_start(args: FinetuneOptions, gathered: Sequence[tuple[Any, Any]]) -> Any:
    """Return the `Trained` of --from, or the `NewModel` of --config."""
    from pretrain.workdir.trained import open_trained

    if args.config:
        return make_new_model(args, gathered)
    workdir: Any = args.pretrained  # a path: the command line has no other form
    chosen = workdir, args.step, args.parameters
    trained = open_trained(*chosen, report=lambda text: print(text, file=sys.stderr))
    return open_to_examples(trained, [examples for _, examples in gathered])


def make_new_model(args: FinetuneOptions, gathered: Sequence[tuple[Any, Any]]) -> NewModel:
    """Return the model of --config, whose vocabulary is the words of the training texts.

    Args:
      gathered: (task, examples) of each task.
    """
    from data.vocabulary.word_level import make_word_vocabulary
    from data.vocabulary.word_vectors import read_word_vectors
    from models.config.heads import HeadedConfig
    from pretrain.finetune.encoders import find_encoder_config

    (task, examples), *others = gathered
    if others or not isinstance(examples, LabelledExamples):
        raise ValueError(
            f"--config {args.config}: a new model learns one task of labelled texts: "
            "classification, regression, or one of GLUE's"
        )
    name: Any = args.config
    run = load(name)
    start: Any = SimpleNamespace(workdir=name, run=run)
    encoder = find_encoder_config(start)
    texts = [text for example in examples.parts["train"] for text in example.texts]
    vectors = {}
    if args.vectors:
        base = make_base_run(args, task, examples, start)
        requested: Any = override_run(base, args.overrides, report=lambda line: None).model
        words = {word for text in texts for word in text.split()}
        vectors = read_word_vectors(args.vectors, requested.encoder.width, words)
    vocabulary = make_word_vocabulary(texts, args.min_count or 1, vectors)
    ids = {
        field: getattr(vocabulary, role) + offset
        for field, (role, offset) in encoder.vocabulary_ids.items()
    }
    encoder = dataclasses.replace(encoder, vocab=vocabulary.size, **ids)
    is_headed = isinstance(run.model, HeadedConfig)
    model: Any = dataclasses.replace(run.model, encoder=encoder) if is_headed else encoder
    return NewModel(name, dataclasses.replace(run, model=model), vocabulary, vectors)


def make_run(args: FinetuneOptions, task: Any, examples: Any, pretrained: Trained) -> Run:
    """Return the configuration of a fine-tuning.

    What the command line does not set is as in BERT's fine-tuning (Devlin et al. 2018, appendix
    A.3).

    Args:
      task: the task, see pretrain/finetune/tasks.py.
      examples: the examples, see `labelled_task.TaskExamples`.
    """
    from pretrain.finetune.encoders import check_trained, fit_window

    given = {argument.partition("=")[0] for argument in args.overrides}
    base = make_base_run(args, task, examples, pretrained)
    requested = override_run(base, args.overrides)
    check_lora_settings(args.adapter, base, requested)
    requested = fit_window(requested, given)
    validate_run(requested)
    check_trained(requested, args.fresh)
    if not requested.evaluate.every:
        raise ValueError(
            "evaluate.every=0 disables the evaluation by which the best step is selected; use at "
            "least 1 (default: once per epoch)"
        )
    rows = (
        examples.count_rows(requested.data.objective, pretrained.vocabulary)
        if isinstance(examples, CountsRows)
        else len(examples.parts["train"])
    )
    epoch = -(-rows // requested.data.batch_size)
    epochs = args.epochs or (EPOCHS_OF_NEW if args.config else EPOCHS)
    steps = requested.train.steps if "train.steps" in given else max(1, round(epochs * epoch))
    every = requested.evaluate.every if "evaluate.every" in given else epoch
    defaults = {
        "train.steps": steps,
        **({} if args.config else {"optimizer.warmup_steps": steps // 10}),
        "evaluate.every": every,
        "checkpoint.every": every,
        "checkpoint.best": (*requested.evaluate.metrics, "loss")[0],
    }
    run = override_run(
        requested, [f"{key}={value}" for key, value in defaults.items() if key not in given]
    )
    validate_run(run)
    return run


def make_base_run(args: FinetuneOptions, task: Any, examples: Any, pretrained: Trained) -> Run:
    """Return the configuration of a fine-tuning without what the command line changes.

    Arguments: as of `make_run`. A new model is trained as its configuration has it.
    """
    model = examples.make_model_config(pretrained)
    objective = examples.make_objective(model)
    given, metrics = pretrained.run, getattr(examples, "metrics", task.metrics)
    if not args.config:
        lora = read_lora_settings(args.adapter, model) if args.adapter else {}
        return Run(
            model=model,
            data=Data(store=os.path.join(args.workdir, "store"), objective=objective),
            optimizer=find_model_family(model).optimizer,
            train=Train(compute_dtype=given.train.compute_dtype, **lora),
            evaluate=Evaluate(metrics=metrics),
            checkpoint=Checkpoint(keep=1),
        )
    if type(given.model) is type(model):
        model = dataclasses.replace(model, dropout=given.model.dropout)
        given_objective: Any = given.data.objective
        objective = dataclasses.replace(objective, length=given_objective.length)
    data = dataclasses.replace(
        given.data, store=os.path.join(args.workdir, "store"), objective=objective
    )
    evaluate = dataclasses.replace(given.evaluate, metrics=metrics)
    checkpoint = dataclasses.replace(given.checkpoint, keep=1)
    return dataclasses.replace(
        given, model=model, data=data, evaluate=evaluate, checkpoint=checkpoint
    )


def prepare_workdir(
    workdir: str, run: Run, pretrained: Trained, args: FinetuneOptions, examples: Any
) -> None:
    """Make the workdir and its store unless they exist.

    Raises:
      ValueError: if the vocabulary has not all that the rows need, or an existing store has other
        examples or another vocabulary.
    """
    from data.examples.example_store import ExampleStore
    from pretrain.training.new_workdir import digest_params, name_folder, start_workdir

    objective: Any = run.data.objective
    objective.check_vocabulary(pretrained.vocabulary)
    if not Workdir.open(workdir).has_config:
        params, new = make_initial_params(run, pretrained, args.fresh)
        if args.adapter:
            params, has_head = add_adapter(args.adapter, run, params)
            new = [] if has_head else new
        origin = {
            "folder": name_folder(pretrained.workdir),
            "pretrained_step": pretrained.step,
            **({"parameters": args.parameters} if args.parameters else {}),
            "task": ", ".join(args.task),
            "fresh": new,
            "fresh_flag": args.fresh,
            **describe_adapter(args.adapter),
        }
        given = (pretrained.step == 0 and pretrained.read_origin()) or {}
        if "repository" in given:
            origin["base_repository"] = given["repository"]
        if pretrained.params:
            origin["pretrained_digest"] = digest_params(pretrained.params)
        start_workdir(workdir, run, params, pretrained.vocabulary, origin)
        beginning = (
            f"all parameters are initialized at random{describe_vectors(pretrained)}"
            if args.fresh == "all"
            else f"parameters come from {pretrained.workdir} at step {pretrained.step:,}; "
            f"initialized at random: {', '.join(new) or 'none'}"
        )
        print(f"{workdir}: {beginning}")
    store: Any = run.data.store
    if os.path.exists(store) and os.listdir(store):
        found = ExampleStore.open(store)
        if (
            found.examples_digest != examples.digest_examples()
            or found.encoding != pretrained.vocabulary
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

    The tables of word vectors that one brings are among these paths.

    Args:
      fresh: "head" or "all": which parameters are initialized at random. With "head", a pretrained
        head that fits the run is used.
    """
    from functools import partial

    import jax

    from models import build
    from models.config.heads import HeadedConfig
    from models.layers.layer_layout import match_layout
    from pretrain.mesh.sharding import format_path
    from pretrain.training.state import init_params

    initial = jax.device_get(
        jax.jit(partial(init_params, build(run.model), run.data.objective, run.train.seed))()
    )
    paths = [format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(initial)]
    if isinstance(pretrained, NewModel) and pretrained.vectors:
        return fill_word_embeddings(initial, pretrained), paths
    if fresh == "all":
        return initial, paths
    given, before = jax.device_get(pretrained.params), pretrained.run.model
    if not isinstance(run.model, HeadedConfig):  # a generative model has no head
        return match_layout(given, initial), []
    if isinstance(before, HeadedConfig):
        if type(before) is type(run.model) and all(
            getattr(before, name) == getattr(run.model, name) for name in list_own_fields(before)
        ):
            return match_layout(given, initial), []
        given = given["encoder"]
    given = find_model_family(before).take_encoder(before.backbone, given)
    # The heads of the pretraining are dropped.
    params = initial | {"encoder": match_layout(given, initial["encoder"])}
    return params, [path for path in paths if not path.startswith("encoder/")]


def describe_vectors(model: Any) -> str:
    """Return how many words of a new model have vectors, as the end of a sentence."""
    if not (isinstance(model, NewModel) and model.vectors):
        return ""
    number = sum(word in model.vectors for word in model.vocabulary.pieces)
    return f", but for the vectors of {number:,} of {model.vocabulary.size:,} words"


def fill_word_embeddings(params: Any, model: NewModel) -> Any:
    """Return parameters in which the tables of word embeddings have the vectors of a new model."""
    import jax

    from data.vocabulary.word_vectors import fill_embeddings
    from pretrain.mesh.sharding import format_path

    def fill_leaf(keys: tuple[Any, ...], leaf: Any) -> Any:
        if not format_path(keys).endswith(WORD_TABLES):
            return leaf
        return fill_embeddings(leaf, model.vocabulary, model.vectors)

    return jax.tree_util.tree_map_with_path(fill_leaf, params)


def list_own_fields(model: Any) -> list[str]:
    """Return the names of the fields that only a model's kind of head has, such as labels."""
    from models.config.heads import HeadedConfig

    common = {field.name for field in dataclasses.fields(HeadedConfig)}
    return [field.name for field in dataclasses.fields(model) if field.name not in common]
