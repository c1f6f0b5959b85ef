"""The sections of a run that no paper and no corpus owns: the step, the mesh, and what is saved, scored and watched."""

import dataclasses
from typing import Literal, TypeAlias

from pretrain.overrides import ConfigError, at_least

# Scores of pretrain/evaluation/task_metrics.py.
Metric: TypeAlias = Literal[
    "accuracy",
    "f1",
    "macro_f1",
    "matthews",
    "pearson",
    "spearman",
    "entity_f1",
    "entity_precision",
    "entity_recall",
    "tag_accuracy",
    "bleu",
    "rouge1",
    "rouge2",
    "rougeL",
    "exact_match",
    "span_f1",
    "mean",
]


@dataclasses.dataclass(frozen=True)
class Train:
    """How long, and how one step is computed."""

    steps: int = 1_000_000  # [steps] Updates in all: the learning rate ends here.
    # [steps] Stop here already, for example to go on with longer rows; 0: at `steps`.
    stop_at_step: int = 0
    seed: int = 0  # Seed of parameters, dropout, order and masks.
    # Parts that the global batch is computed in, one after the other; the result is the same, for gradients are sums.
    microbatches: int = 1
    # Type that a step computes in. Parameters and optimizer are float32 in either case.
    compute_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    # Share of a target's weight that all tokens share alike, in training only (Szegedy et al. 2016, section 7).
    label_smoothing: float = 0.0
    # Decay of the exponential moving average of the parameters, such as 0.9999; 0: none is kept. `average --ema` makes a workdir of it, to be
    # evaluated and exported. It is a part of the optimizer's state, so a run keeps it or does without, as it began.
    ema_decay: float = 0.0
    # [layers] Of a fine-tuned encoder, the layers from the top that train beside pooler and head; 0: no layer; none: all of the encoder.
    trainable_layers: int | None = None

    def __post_init__(self):
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(
                f"Train.label_smoothing is {self.label_smoothing}; it must be at least 0 and below 1"
            )
        if not 0 <= self.ema_decay <= 1 - 2**-24:  # which float32 tells from 1
            raise ConfigError(
                f"Train.ema_decay is {self.ema_decay}; it must be at least 0 and below 1 (in float32)"
            )
        at_least(self, 1, "steps", "microbatches")
        at_least(self, 0, "seed", "stop_at_step")
        at_least(self, 0, "trainable_layers")
        if self.stop_at_step > self.steps:
            raise ConfigError(
                f"Train.stop_at_step={self.stop_at_step} lies behind Train.steps={self.steps}, where the learning rate ends"
            )

    @property
    def end(self):
        """The last step."""
        return self.stop_at_step or self.steps


@dataclasses.dataclass(frozen=True)
class Guard:
    """What is done about steps that would do harm. A step whose loss or gradients are not finite is always skipped: it changes nothing.

    After `patience` skipped steps in a row the run goes back to the last checkpoint before them, and on with the data behind them, as
    PaLM's did (Chowdhery et al. 2022, section 5.1); where as many are skipped again, with no sound step saved in between, it ends.
    With `norm_factor`, steps are skipped too whose gradient norm is above `norm_factor` times the mean of those taken: of about the last `norm_window`, and
    once there are so many. It is off unless asked for, since `max_grad_norm` tames a single spike; OLMo 2 skips beyond 6 standard deviations of 128.
    """

    patience: int = 10  # [steps] Skipped steps in a row after which the run goes back.
    # A step is skipped whose gradient norm is above so many times the mean, 6 for example; 0: no norm is too large. The mean is kept with
    # the optimizer's state, so a run keeps the setting that it began with.
    norm_factor: float = 0.0
    norm_window: int = 100  # [steps] Length of the mean of gradient norms.
    # [steps] Interval of checking, also before each save, that devices which hold the same hold the same bits; 0: never.
    replicas: int = 1_000

    def __post_init__(self):
        at_least(self, 1, "patience", "norm_window")
        at_least(self, 0, "norm_factor", "replicas")
        if 0 < self.norm_factor <= 1:
            raise ConfigError(
                f"Guard.norm_factor is {self.norm_factor:g}, but a norm may well be the mean of them; it must be 0 or above 1"
            )


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices along each axis; one -1 takes what is left. Rows over data and fsdp, parameters over fsdp and model.

    Between blocks the positions of a row lie over `sequence`: for rows so long that one does not fit on a device.
    """

    data: int = -1  # [devices] Copies of the model, each with its rows.
    fsdp: int = (
        1  # [devices] Parts that parameters and optimizer are divided into; each has its rows, too.
    )
    model: int = 1  # [devices] Parts of each layer's matrices (tensor parallelism).
    sequence: int = 1  # [devices] Parts of a row's positions, between blocks.

    def __post_init__(self):
        if any(size < 1 and size != -1 for size in self.sizes):
            raise ConfigError(f"mesh: {self}: each is at least 1, and one of them may be -1")
        if self.sizes.count(-1) > 1:
            raise ConfigError(f"mesh {self}: only one of them may be -1")

    @property
    def sizes(self):
        return self.data, self.fsdp, self.model, self.sequence

    def __str__(self):
        return " x ".join(
            f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self)
        )


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """The whole held-out part is scored every `every` steps and after the last."""

    every: int = 10_000  # [steps] Interval of scoring the whole held-out part; 0: never.
    # Scores of labels and answers beside the loss: pretrain/evaluation/task_metrics.py.
    metrics: tuple[Literal[Metric, "unread_words", "null_threshold"], ...] = ()
    # [rows] Held-out rows whose gaps, and what the model says there, are noted each time: docs/inside.md.
    samples: int = 4
    # Evaluations without a better score of checkpoint.best, in a row, after which the run ends; 0: it goes on to its last step.
    patience: int = 0

    def __post_init__(self):
        at_least(self, 0, "every", "samples", "patience")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Saved every `every` steps and after the last. What stays: the newest `keep`, each multiple of `keep_every`, the best, and pinned ones."""

    every: int = 1_000  # [steps] Interval of saving.
    keep: int = 3  # The newest checkpoints that stay.
    keep_every: int = 0  # [steps] Each checkpoint at a multiple of this stays too; 0: none.
    # Score whose best checkpoint stays too, of those saved where the held-out part was scored: the lowest loss, or the highest of
    # evaluate.metrics; '': none.
    best: Literal["", "loss", Metric] = ""

    def __post_init__(self):
        at_least(self, 1, "every", "keep")
        at_least(self, 0, "keep_every")


@dataclasses.dataclass(frozen=True)
class Limits:
    """Seconds that a run may do one thing before it is held to be hung and ends with status 75; 0: for ever.

    The result does not depend on them, and they may be changed on continuing. A step or a batch of minutes needs no other limits.
    """

    start: float = 0.0  # [seconds] Parameters made or restored.
    compile: float = 0.0  # [seconds] The first step of each start; hours for the largest models.
    data: float = 1800.0  # [seconds] Waiting for one batch.
    # [seconds] Waiting for one step, of all hosts: the first one for their compilers, too.
    step: float = 1800.0
    evaluate: float = 7200.0  # [seconds] One batch of the held-out part, compiled at its first.
    save: float = (
        3600.0  # [seconds] One checkpoint, from the state at hand to the old ones deleted.
    )

    def __post_init__(self):
        at_least(self, 0, *(field.name for field in dataclasses.fields(self)))
