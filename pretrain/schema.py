"""The parts of a run that no paper and no corpus owns: the optimizer, the step, the mesh, and what is saved, scored and watched.

Importing this module imports neither JAX nor TensorFlow.
"""

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
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); the defaults are BERT's (Devlin et al. 2018, A.2).

    The rate climbs linearly to `learning_rate` over `warmup` steps, then falls to `final` times that at step `fallen`, or
    at the run's last: linearly, or by half a cosine (Loshchilov and Hutter 2017); or as the inverse square root of the step, without end
    (Vaswani et al. 2017, section 5.3). Biases and norms are not decayed. Gradients are clipped to the global norm `clip`; 0 leaves them.
    With `relative` each parameter's update is multiplied by its root mean square (at least 1e-3), as Adafactor's is: what T5
    needs, whose parameters begin between 0.008 and 1 in size. The rate is then a relative one, such as 0.01.
    """

    learning_rate: float = 1e-4
    warmup: int = 10_000
    final: float = 0.0
    decay: Literal["linear", "cosine", "inverse_square_root"] = "linear"
    fallen: int = (
        0  # the step from which the rate stays at `final` times `learning_rate`; 0: the run's last
    )
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0
    relative: bool = False

    def __post_init__(self):
        at_least(
            self,
            0,
            "learning_rate",
            "warmup",
            "final",
            "fallen",
            "weight_decay",
            "beta1",
            "beta2",
            "epsilon",
            "clip",
        )


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern 2018) as T5 used it: rate 1/sqrt(max(step, warmup)), scaled by each parameter's RMS.

    With `decay="linear"` the rate is `learning_rate` after a linear warm-up and falls linearly to 0 instead.
    `learning_rate` multiplies the inverse square root too, where the paper's value is 1.
    """

    learning_rate: float = 1.0
    warmup: int = 10_000
    decay: Literal["inverse_sqrt", "linear"] = "inverse_sqrt"
    clip: float = 1.0  # on the RMS of each parameter's update, the paper's d

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup")
        at_least(self, 1e-6, "clip")


@dataclasses.dataclass(frozen=True)
class Lamb:
    """LAMB (You et al. 2020, algorithm 2); the defaults are ALBERT's (Lan et al. 2020, section 4.1, and their code).

    AdamW's update of each weight matrix of each layer, scaled to the length of the matrix itself: so that batches of thousands of
    rows can take large steps. Biases and norms are neither decayed nor scaled. The rate, and `clip`, are as AdamW's.
    """

    learning_rate: float = 0.00176
    warmup: int = 3_125
    final: float = 0.0
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0

    def __post_init__(self):
        at_least(
            self,
            0,
            "learning_rate",
            "warmup",
            "final",
            "weight_decay",
            "beta1",
            "beta2",
            "epsilon",
            "clip",
        )


@dataclasses.dataclass(frozen=True)
class Train:
    """How long, and how one step is computed."""

    steps: int = 1_000_000  # updates in all: the learning rate ends here
    until: int = 0  # stop after so many already, e.g. to go on with longer rows; 0: at `steps`
    seed: int = 0  # of parameters, dropout, order and masks alike
    microbatches: int = 1  # the global batch is computed in so many parts; gradients are sums, so the result is the same
    compute: Literal["bfloat16", "float32"] = (
        "bfloat16"  # parameters and optimizer are float32 in either case
    )
    smoothing: float = 0.0  # the share of a target's weight that all words share alike, in training only (Szegedy et al. 2016, section 7)

    free: int = -1  # of a fine-tuned encoder, how many layers from the top learn beside pooler and head; 0: these alone; -1: all of it

    def __post_init__(self):
        if not 0 <= self.smoothing < 1:
            raise ConfigError(
                f"Train.smoothing is {self.smoothing}; it must be at least 0 and below 1"
            )
        at_least(self, 1, "steps", "microbatches")
        at_least(self, 0, "seed", "until")
        at_least(self, -1, "free")
        if self.until > self.steps:
            raise ConfigError(
                f"Train.until={self.until} lies behind Train.steps={self.steps}, where the learning rate ends"
            )

    @property
    def end(self):
        """The last step."""
        return self.until or self.steps


@dataclasses.dataclass(frozen=True)
class Guard:
    """What is done about steps that would do harm. A step whose loss or gradients are not finite is always skipped: it changes nothing.

    After `patience` skipped steps in a row the run goes back to the last checkpoint before them, and on with the data behind them, as
    PaLM's did (Chowdhery et al. 2022, section 5.1); where as many are skipped again, with no sound step saved in between, it ends.
    With `spike`, steps are skipped too whose gradient norm is above `spike` times the mean of those taken: of about the last `memory`, and
    once there are so many. It is off unless asked for, since `clip` tames a single spike; OLMo 2 skips beyond 6 standard deviations of 128.
    """

    patience: int = 10
    spike: float = 0.0  # e.g. 6; 0: no norm is too large. Its mean is kept with the optimizer's state, so a run keeps what it began with
    memory: int = 100
    replicas: int = 1_000  # every so many steps, and before each save: do devices that hold the same hold the same bits? 0: never

    def __post_init__(self):
        at_least(self, 1, "patience", "memory")
        at_least(self, 0, "spike", "replicas")
        if 0 < self.spike <= 1:
            raise ConfigError(
                f"Guard.spike is {self.spike:g}, but a norm may well be the mean of them; it must be 0 or above 1"
            )


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices along each axis; one -1 takes what is left. Rows over data and fsdp, parameters over fsdp and model.

    Between blocks the positions of a row lie over `sequence`: for rows so long that one does not fit on a device.
    """

    data: int = -1
    fsdp: int = 1
    model: int = 1
    sequence: int = 1

    def __post_init__(self):
        if any(
            size < 1 and size != -1 for size in self.sizes
        ):  # that only one is -1 is checked when all words have been applied
            raise ConfigError(f"mesh: {self}: each is at least 1, and one of them may be -1")

    @property
    def sizes(self):
        return self.data, self.fsdp, self.model, self.sequence

    def __str__(self):
        return " x ".join(
            f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self)
        )


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """The whole held-out part, every `every` steps and after the last; 0 leaves it out of training."""

    every: int = 10_000
    metrics: tuple[
        Literal[Metric, "unread_words", "null_threshold"], ...
    ] = ()  # of labels and answers: finetune/metrics.py
    samples: int = 4  # of its rows, whose gaps and what the model says there are noted each time: docs/inside.md

    def __post_init__(self):
        at_least(self, 0, "every", "samples")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Saved every `every` steps and after the last. What stays: the newest `keep`, each multiple of `keep_every`, the best, and pinned ones."""

    every: int = 1_000
    keep: int = 3
    keep_every: int = 0  # 0: none
    # Of those saved where the held-out part was scored too, the one with the lowest loss, or the highest of evaluate.metrics.
    best: Literal["", "loss", Metric] = ""

    def __post_init__(self):
        at_least(self, 1, "every", "keep")
        at_least(self, 0, "keep_every")


@dataclasses.dataclass(frozen=True)
class Limits:
    """Seconds that a run may do one thing before it is held to be hung and ends with status 75; 0: for ever.

    The result does not depend on them, and they may be changed on continuing. A step or a batch of minutes needs no other limits.
    """

    start: float = 0.0  # parameters made or restored
    compile: float = 0.0  # the first step of each start; hours for the largest models
    data: float = 1800.0  # waiting for one batch
    step: float = (
        1800.0  # waiting for one step, of all hosts: the first one for their compilers, too
    )
    evaluate: float = 7200.0  # one batch of the held-out part, compiled at its first
    save: float = 3600.0  # one checkpoint, from the state at hand to the old ones deleted

    def __post_init__(self):
        at_least(self, 0, *(field.name for field in dataclasses.fields(self)))
