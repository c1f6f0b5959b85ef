"""The dataclass of a run, and the checks that its sections are consistent. No JAX."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from data.config import Data
from data.members import call_later
from data.mixed import Mixed, split_objective
from data.objectives import CLASSES
from data.rows.ramp import FULL_BATCH, Ramp
from models.config.base import Config, ImageConfig, ModelConfig, PatchConfig
from models.config.heads import HeadedConfig
from pretrain.families.kinds import FAMILY_CONFIGS, find_objectives, find_own_objectives
from pretrain.settings import (
    AdamW,
    Checkpoint,
    Evaluate,
    Guard,
    Limits,
    Mesh,
    Optimizer,
    Phase,
    Train,
)
from pretrain.settings.fields import list_sections
from pretrain.settings.optimizers import WeightDecay
from pretrain.settings.overrides import ConfigError

check_fine_tuning = call_later("pretrain.families.fine_tuning:check_fine_tuning")
check_images = call_later("pretrain.families.image_fit:check_images")
check_score = call_later("pretrain.settings.scores:check_score")

MAX_SIZE = 2**31 - 1  # of a dimension: XLA has indices of 32 bits

if TYPE_CHECKING:
    Model = ModelConfig | PatchConfig | HeadedConfig
else:
    Model = Config


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that determines the result of a run."""

    model: Model  # The model and its sizes, one class for each paper.
    data: Data  # The data and the objective.
    optimizer: Optimizer = AdamW()  # The optimizer and its schedule.
    train: Train = Train()  # The length of training, and how a step is computed.
    guard: Guard = Guard()  # The handling of steps that would harm training.
    mesh: Mesh = Mesh()  # The layout of the devices.
    evaluate: Evaluate = Evaluate()  # The evaluation on the held-out part.
    checkpoint: Checkpoint = Checkpoint()  # When checkpoints are saved and deleted.
    watchdog: Limits = Limits()  # The seconds after which a run counts as hung.
    phases: tuple[Phase, ...] = ()  # The phases of training, in order; (): one with these settings.


def list_ramps(run: Run) -> dict[str, Ramp]:
    """Return {key: ramp} of the settings of a run that change over the steps, but for the batch."""
    ramps = {"data.temperature_ramp": run.data.temperature_ramp}
    for name, objective in split_objective(run.data.objective).items():
        part = f"parts.{name}.objective." if name else ""
        ramps[f"data.objective.{part}mask_ramp"] = objective.mask_ramp
    if isinstance(run.optimizer, WeightDecay):
        ramps["optimizer.weight_decay_ramp"] = run.optimizer.weight_decay_ramp
    return {key: ramp for key, ramp in ramps.items() if ramp and not ramp.is_constant}


class SectionClasses(Mapping[str, type]):
    """{name in JSON and on the command line: class} of all classes in a run.

    No others are loaded. The models and objectives that a name does not need are not imported.
    """

    def __init__(self) -> None:
        """List the classes that are imported with `Run`."""
        self.closed = {kind.__name__: kind for kind in list_sections(Run, is_open=False)}

    def __getitem__(self, name: str) -> type:
        """Return a class; raise KeyError for any other name."""
        for kinds in (CLASSES, FAMILY_CONFIGS):
            if kind := kinds.get(name):
                return kind
        if kind := self.closed.get(name):
            return kind
        return {kind.__name__: kind for kind in list_sections(Run)}[name]

    def __iter__(self) -> Iterator[str]:
        """Yield all names."""
        return (kind.__name__ for kind in list_sections(Run))

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(list_sections(Run))


SECTION_CLASSES = SectionClasses()


def validate_run(run: Run) -> None:
    """Raise ConfigError, which names the keys, unless the sections of `run` are consistent."""
    if run.checkpoint.best and not run.evaluate.every:
        raise ConfigError(
            f"checkpoint.best={run.checkpoint.best} needs the held-out part: set evaluate.every "
            "to a multiple of checkpoint.every"
        )
    if run.checkpoint.best:
        check_score(run.evaluate, run.checkpoint.best, f"checkpoint.best={run.checkpoint.best}")
    if run.evaluate.patience and not run.checkpoint.best:
        raise ConfigError(
            f"evaluate.patience={run.evaluate.patience} needs a metric to watch: set "
            "checkpoint.best, for example to loss"
        )
    if run.evaluate.patience and run.evaluate.every % run.checkpoint.every:
        raise ConfigError(
            f"evaluate.patience={run.evaluate.patience}: the best step is kept only if it is "
            f"saved; set evaluate.every={run.evaluate.every} to a multiple of checkpoint.every="
            f"{run.checkpoint.every}"
        )
    if run.evaluate.ema and not run.train.ema_decay:
        raise ConfigError(
            "evaluate.ema=true: the run keeps no moving average of its parameters; set "
            "train.ema_decay, for example to 0.999, or evaluate.ema=false"
        )
    run.optimizer.check_length(run.train.steps)
    check_sizes(run.model, "model")
    check_sizes(dataclasses.replace(run.data, batch_ramp=FULL_BATCH), "data")  # it counts tokens
    for objective in split_objective(run.data.objective).values():
        check_objective(run.model, objective)
    if isinstance(run.data.objective, Mixed):
        check_mixture(run)
    if run.data.objective.order == "lanes" and not run.model.keeps_state:
        raise ConfigError(
            "data.objective.order=lanes is for models that carry a state between steps, and a "
            f"{type(run.model).__name__} carries none"
        )
    parts = run.train.trainable_layers, run.train.lora_rank, run.train.lora_dropout or None
    trains_all = run.optimizer.layer_decay == 1 and parts == (None,) * 3
    if isinstance(run.model, HeadedConfig) or not trains_all:
        check_fine_tuning(run)


def check_sizes(section: Any, path: str) -> None:
    """Raise ConfigError, which names the key, for a whole number that no array can be indexed by.

    Args:
      section: a section of a run; those below it are checked, too.
      path: its key.
    """
    for field in dataclasses.fields(section):
        value, key = getattr(section, field.name), f"{path}.{field.name}"
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                check_sizes(part, key)
        if isinstance(value, int) and abs(value) > MAX_SIZE:
            raise ConfigError(f"{key}={value}: at most {MAX_SIZE:,}, the largest index of an array")


def check_objective(model: Any, objective: Any) -> None:
    """Raise ConfigError unless an objective can train a model."""
    own, name = find_own_objectives(type(model)), type(model).__name__
    mixing = is_mixing(model)
    if own == ():
        raise ConfigError(
            f"model: a {name} is trained with a head, by `finetune --config` on labelled texts, or "
            "as model.encoder of a ClassifierConfig"
        )
    if own and not (
        isinstance(objective, own) or objective.trains_as in {kind.name for kind in own}
    ):
        fitting = find_objectives(type(model))
        names = " or ".join(kind.__name__ for kind in fitting)
        reason = (
            ", because it mixes all positions of a row and cannot hide the later ones. Set "
            f"data.objective={fitting[0].__name__}"
        )
        raise ConfigError(
            f"data.objective: a {name} is trained by {names}, not by {type(objective).__name__}"
            f"{reason if mixing else ''}"
        )
    check_characters(model, objective)
    if isinstance(model, ImageConfig) or objective.patch_size is not None:
        check_images(model, objective)
    if mixing and any("segment_ids" in key for key in objective.describe_batch()):
        raise ConfigError(
            "data.objective.rows=packed: texts that are packed into a row must not read each "
            f"other, and a {name} mixes all positions of a row. Set data.objective.rows to "
            "documents, sentences or windows"
        )


def check_characters(model: Any, objective: Any) -> None:
    """Raise ConfigError unless rows have what a model reads: characters of words, or ids."""
    expected, actual = model.characters, objective.characters
    if expected == actual:
        return
    name = type(model.backbone).__name__
    if not objective.can_spell:
        raise ConfigError(
            f"data.objective: a {name} reads words by their characters, and the rows of "
            f"{type(objective).__name__} have none"
        )
    raise ConfigError(
        f"data.objective.characters={actual}: a {name} reads "
        f"{f'{expected} characters of a word' if expected else 'ids'}; set "
        f"data.objective.characters={expected}"
    )


def is_mixing(model: Any) -> bool:
    """Return whether a model, or the encoder of a fine-tuned one, mixes the positions of a row."""
    return model.backbone.mixes_positions


def check_mixture(run: Run) -> None:
    """Raise ConfigError unless a mixture's batch divides into its parts, and no metrics are set."""
    objective = run.data.objective
    assert isinstance(objective, Mixed)
    try:
        objective.count_part_rows(run.data.batch_size)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if run.evaluate.metrics:
        raise ConfigError(
            f"evaluate.metrics={','.join(run.evaluate.metrics)}: only losses and accuracies are "
            "computed of a mixture of objectives; leave evaluate.metrics empty"
        )
