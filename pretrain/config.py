"""A run is a tree of frozen dataclasses, one per owner: written in Python, changed by `path=value` arguments, saved as JSON.

    run = load("configs/bert_base.py", ["optimizer.learning_rate=3e-4", "model.depth=6"])
    assert from_json(to_json(run)) == run

Importing this module imports neither JAX nor TensorFlow, so that a misspelt key is an error in well under a second.
"""

import dataclasses
import difflib
import functools
import importlib.util
import json
import operator
import pathlib
import sys
from typing import TYPE_CHECKING

from data.config import Data
from data.mixed import Mixed, split_objective
from data.objectives import OBJECTIVES
from data.objectives.answer_span import AnswerSpan
from data.objectives.base import Objective
from data.objectives.classification import Classification
from data.objectives.multiple_choice import MultipleChoice
from data.objectives.regression import Regression
from data.objectives.tagging import Tagging
from models.config.base import Config, ModelConfig
from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    HeadedConfig,
    SpanReaderConfig,
    TaggerConfig,
)
from pretrain.families import FAMILIES
from pretrain.fields import list_dropped, list_sections
from pretrain.overrides import (
    ConfigError,
    apply_overrides,
    check,
    parse_override,
    plain,
    show_value,
    typed,
)
from pretrain.schema import Adafactor as Adafactor  # for configuration files, as the others
from pretrain.schema import (
    AdamW,
    Checkpoint,
    Evaluate,
    Guard,
    Limits,
    Mesh,
    Optimizer,
    Train,
)
from pretrain.schema import Lamb as Lamb

# Of a workdir: what its config.json and its checkpoints' records are written as. It rises when fields, parameter paths or files change so
# that those of before cannot be read. Format 1, of version 0.1.0, stands in no config.json.
FORMAT = 3


def find_objectives(own: tuple[type[Objective], ...]) -> tuple[type[Objective], ...]:
    """Return a model's own objectives, and those that train whatever one of these trains."""
    names = {kind.name for kind in own}
    return own + tuple(kind for kind in OBJECTIVES.values() if kind.trains_as in names)


# Whose batches a model takes.
TRAINED_BY: dict[type[Config], tuple[type[Objective], ...]] = {
    **{family.config: find_objectives(family.objectives) for family in FAMILIES.values()},
    ClassifierConfig: (Classification, Regression),
    TaggerConfig: (Tagging,),
    ChoiceConfig: (MultipleChoice,),
    SpanReaderConfig: (AnswerSpan,),
}

if TYPE_CHECKING:
    Model = ModelConfig | ClassifierConfig | TaggerConfig | ChoiceConfig | SpanReaderConfig
else:
    Model = functools.reduce(operator.or_, TRAINED_BY)

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that a run is; what is not in here does not change its result."""

    model: Model  # The model and its sizes; its class is a paper's.
    data: Data  # What is read, and what is learned from it.
    optimizer: Optimizer = AdamW()  # The optimizer and its schedule.
    train: Train = Train()  # How long, and how a step is computed.
    guard: Guard = Guard()  # What is done about harmful steps.
    mesh: Mesh = Mesh()  # How devices are laid out.
    evaluate: Evaluate = Evaluate()  # When the held-out part is scored.
    checkpoint: Checkpoint = Checkpoint()  # When is saved, and what is kept.
    watchdog: Limits = Limits()  # How long a run may take for one thing.


# Every class that may stand in a run, by the name that it has in JSON and on the command line: nothing else is loaded.
KINDS = {kind.__name__: kind for kind in list_sections(Run)}


# ---- loading -----------------------------------------------------------------


def load(name, overrides=()):
    """Return the run that a configuration file describes, with `path=value` arguments applied, and validated.

    name: `bert_base`, `configs/bert_base.py`, any other Python file with a `config()`, or a saved `config.json`.
    Raises ConfigError, which names the file or the key and the nearest one that exists.
    """
    path = _find(name)
    run = read_json(path) if path.suffix == ".json" else _execute(path)
    run = override(run, overrides)
    validate(run)
    return run


def print_notice(line):
    """Print a line beside a program's output."""
    print(line, file=sys.stderr)


def override(run, arguments, report=print_notice):
    """Return a copy of `run` with all `path=value` arguments applied, whatever their order; whether it makes sense is `validate`'s.

    report: takes a line for each argument that replaces a whole section, such as optimizer=lamb, and drops settings of it.
    Raises ConfigError for an argument that is no setting of the run.
    """
    overrides = [parse_override(argument) for argument in arguments]
    changed = apply_overrides(run, overrides)
    for line in list_dropped(run, changed, overrides):
        report(line)
    return changed


def validate(run):
    """Raise ConfigError, which names the keys, unless the sections of `run` fit each other."""
    if run.checkpoint.best and not run.evaluate.every:
        raise ConfigError(
            f"checkpoint.best={run.checkpoint.best} needs the held-out part: set evaluate.every to a multiple of checkpoint.every"
        )
    if run.checkpoint.best not in ("", "loss", *run.evaluate.metrics):
        raise ConfigError(
            f"checkpoint.best={run.checkpoint.best} is not measured: add it to evaluate.metrics, which are {run.evaluate.metrics}"
        )
    if run.evaluate.patience and not run.checkpoint.best:
        raise ConfigError(
            f"evaluate.patience={run.evaluate.patience} needs a score that is to become better: set checkpoint.best, for example to loss"
        )
    if run.evaluate.patience and run.evaluate.every % run.checkpoint.every:
        raise ConfigError(
            f"evaluate.patience={run.evaluate.patience}: the best step is only kept where it is saved; set evaluate.every="
            f"{run.evaluate.every} to a multiple of checkpoint.every={run.checkpoint.every}"
        )
    for objective in split_objective(run.data.objective).values():
        fitting = TRAINED_BY.get(type(run.model), (type(objective),))
        if not isinstance(objective, fitting):
            names = " or ".join(kind.__name__ for kind in fitting)
            raise ConfigError(
                f"data.objective: a {type(run.model).__name__} is trained by {names}, not by {type(objective).__name__}"
            )
    if isinstance(run.data.objective, Mixed):
        check_mixture(run)
    if getattr(run.data.objective, "order", "shuffled") == "lanes" and not getattr(
        run.model, "keeps_state", False
    ):
        raise ConfigError(
            f"data.objective.order=lanes is for models that keep a state between steps, and a {type(run.model).__name__} keeps none"
        )
    if isinstance(run.model, (ClassifierConfig, TaggerConfig)):
        check_labels(run.model.labels, run.data.objective)
    if (
        isinstance(run.model, TaggerConfig)
        and run.model.scheme == "plain"
        and (spelled := {*run.evaluate.metrics} - {"tag_accuracy", "unread_words"})
    ):
        raise ConfigError(
            f"evaluate.metrics: {min(spelled)} is of entities, and plain tags spell none; take tag_accuracy"
        )
    if run.train.trainable_layers is not None:
        check_trainable_layers(run.model, run.train.trainable_layers)


def check_mixture(run):
    """Raise ConfigError unless the batch divides into the parts of a mixture, and its scores are those that a mixture has."""
    try:
        run.data.objective.rows(run.data.batch_size)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if run.evaluate.metrics:
        raise ConfigError(
            f"evaluate.metrics={','.join(run.evaluate.metrics)}: of a mixture of objectives, losses and accuracies are scored alone"
        )


def check_labels(labels, objective):
    """Raise ConfigError unless an objective has a model's labels: none for scores, and a weight for each where they are weighted."""
    if bool(labels) == isinstance(objective, Regression):
        raise ConfigError(
            f"data.objective: {objective.name}, but model.labels={labels}: Classification has labels, Regression has none"
        )
    if labels and len(objective.class_weights) not in (0, len(labels)):
        raise ConfigError(
            f"data.objective.class_weights={objective.class_weights}: one for each of model.labels, which are {', '.join(labels)}"
        )


def check_trainable_layers(model, trainable_layers):
    """Raise ConfigError unless the upper `trainable_layers` of a model's encoder can train alone."""
    if not isinstance(model, HeadedConfig):
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: only a fine-tuned encoder can stay as it is, and a {type(model).__name__} is none"
        )
    if model.encoder.shares_layers and trainable_layers:
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: all layers of the {type(model.encoder).__name__} are one and the same; train.trainable_layers=0 keeps it as it is, train.trainable_layers=none trains it"
        )
    if trainable_layers > model.encoder.depth:
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: the encoder has {model.encoder.depth} layers; train.trainable_layers=none trains all of it"
        )


def _find(name):
    given = pathlib.Path(name)
    for path in (given, CONFIGS / f"{name}.py"):
        if path.suffix in (".py", ".json") and path.is_file():
            return path
    known = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")
    close = difflib.get_close_matches(given.stem, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(
        f"no configuration {str(name)!r}: {hint}There are {', '.join(known)}, or a path to a .py or .json file"
    )


def _execute(path):
    spec = importlib.util.spec_from_file_location(f"configuration_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # there is a loader for the suffix .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "config", None)):
        raise ConfigError(f"{path}: a configuration file defines config() -> Run")
    try:
        run = module.config()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(run, Run):
        raise ConfigError(f"{path}: config() returned {type(run).__name__}, not a Run")
    check(run, "")
    return run


# ---- JSON --------------------------------------------------------------------


def to_json(run):
    """Return the resolved configuration, with the number of the format, as text that `from_json` reads back equal."""
    return json.dumps({"format": FORMAT, **plain(run)}, indent=2) + "\n"


def read_json(path):
    """The run in a saved configuration (pathlib or epath). Raises ConfigError, which names the file, where it is damaged or another."""
    try:
        return from_json(path.read_text(), where=str(path))
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error


def from_json(text, where="configuration"):
    """The run that `to_json` wrote. Raises ConfigError, which names `where` and the key, for anything else."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON ({error})") from error
    if isinstance(tree, dict) and tree.get("type") == Run.__name__:
        check_format(tree.pop("format", None), where)
    run = typed(tree, KINDS, where)
    if not isinstance(run, Run):
        raise ConfigError(f"{where}: not a saved configuration (its type is not Run)")
    check(run, where)
    return run


def check_format(found, where):
    """Raise ConfigError unless a workdir's format, None where no number is given, is the one that is read here."""
    if type(found) is not int or found != FORMAT:
        number = "no format number" if found is None else f"format {show_value(found)}"
        raise ConfigError(
            f"{where} has {number}, and this version of Cloze reads workdirs of format {FORMAT}: export the workdir with the "
            f"version that wrote it, and import that folder with this one"
        )
