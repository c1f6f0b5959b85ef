"""The sections of a run for training, phases, mesh, evaluation, checkpoints and limits."""

import dataclasses
from typing import Literal, TypeAlias

from pretrain.settings.overrides import ConfigError, check_at_least

EMA_SCORE = "ema/"  # begins the name of a score of the parameters' moving average
# Metrics of pretrain/evaluation/task_metrics.py.
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
    "bleu_13a",
    "bleu_zh",
    "bleu_char",
    "rouge1",
    "rouge2",
    "rougeL",
    "exact_match",
    "span_f1",
    "mean",
]

LoraTarget: TypeAlias = Literal[
    "attention", "mlp", "query", "key", "value", "out", "gate", "up", "down"
]
AttentionChoice: TypeAlias = Literal["auto", "plain", "splash", "cudnn", "row", "chunk"]


@dataclasses.dataclass(frozen=True)
class Train:
    """The length of training, and how a step is computed."""

    steps: int = 1_000_000  # [steps] All updates; the learning rate ends here.
    # [steps] Stop earlier, for example to continue with longer rows; 0: at `steps`.
    stop_at_step: int = 0
    seed: int = 0  # Seed of parameters, dropout, order and masks.
    microbatches: int = 1  # Parts of the batch, computed one after the other, with the same result.
    # Dtype of a step's computation. Parameters and optimizer state stay float32.
    compute_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    # Dtype in which devices sum gradients, if only `mesh.data` and `mesh.fsdp` exceed 1; none:
    # `compute_dtype`.
    exchange_dtype: Literal["bfloat16", "float32"] | None = None
    # auto: the best kernel that agrees with the plain equations on the run's shapes; plain: the
    # equations, by XLA; or one kernel: splash, row, chunk (TPU), cudnn (GPU), refused if it cannot
    # serve the run.
    attention: AttentionChoice = "auto"
    # Share of a label's probability that training spreads over all tokens or classes (Szegedy et
    # al. 2016, section 7). Sentence pairs, replaced tokens and a teacher's predictions are exempt.
    label_smoothing: float = 0.0
    # Factor of log(Z)^2 that training adds to a loss over the vocabulary, such as 1e-4, Z being the
    # softmax' sum (Chowdhery et al. 2022, section 5). Losses of classes and spans have none.
    z_loss: float = 0.0
    # Decay of the parameters' moving average (EMA), such as 0.9999; 0: none. A run cannot start or
    # stop it later.
    ema_decay: float = 0.0
    # [layers] Top encoder layers that fine-tuning trains, besides pooler and head; none: all.
    trainable_layers: int | None = None
    # LoRA (Hu et al. 2021): train two factors of this rank beside each target, and the head, and
    # freeze the model that the run begins with; none: train the model itself.
    lora_rank: int | None = None
    lora_alpha: float = 16.0  # Factor of LoRA's products, which are divided by the rank.
    # Probability that LoRA's products lack an input in training (LoRA's `lora_dropout` in `peft`).
    lora_dropout: float = 0.0
    # LoRA's targets: matrices of every layer by name, or all of attention or of the MLPs.
    lora_targets: tuple[LoraTarget, ...] = ("attention",)

    def __post_init__(self) -> None:
        for name in ("label_smoothing", "lora_dropout"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ConfigError(f"Train.{name} is {value}; it must be at least 0 and below 1")
        if not 0 <= self.ema_decay <= 1 - 2**-24:  # float32 distinguishes it from 1
            raise ConfigError(
                f"Train.ema_decay is {self.ema_decay}; it must be at least 0 and below 1 in float32"
            )
        check_at_least(self, 1, "steps", "microbatches")
        check_at_least(self, 0, "seed", "stop_at_step", "z_loss")
        check_at_least(self, 0, "trainable_layers")
        check_at_least(self, 1, "lora_rank")
        if self.steps >= 1 << 31:  # the state counts steps in int32
            raise ConfigError(f"Train.steps is {self.steps}; it must be below 2^31")
        if self.stop_at_step > self.steps:
            raise ConfigError(
                f"Train.stop_at_step={self.stop_at_step} is above Train.steps={self.steps}, where "
                "the learning rate ends; set train.stop_at_step to at most that, or to 0 to stop "
                "there"
            )

    @property
    def lora_scale(self) -> float:
        """The factor of LoRA's products."""
        return self.lora_alpha / (self.lora_rank or 1)

    @property
    def last_step(self) -> int:
        """The last step."""
        return self.stop_at_step or self.steps


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of training with other settings.

    The phases of a run follow each other in one training. Each has the run's settings and its
    overrides. The learning rate's schedule starts again in each phase and spans its steps.
    """

    name: str  # Phase's name in metrics and keys: small letters, digits and _.
    steps: int = 0  # [steps] Length, if `tokens` is 0.
    tokens: int = 0  # [tokens] Length, padding included, rounded up to whole steps.
    overrides: tuple[str, ...] = ()  # Its settings, as `path=value`.


@dataclasses.dataclass(frozen=True)
class Guard:
    """The handling of steps that would harm training.

    A step with a non-finite loss or gradient is always skipped. After `patience` skipped steps in a
    row the run returns to the last checkpoint and continues with later data, as PaLM did (Chowdhery
    et al. 2022, section 5.1). If as many are skipped again before a save, the run ends.

    With `norm_factor`, a step is also skipped if its gradient norm exceeds the mean of about the
    last `norm_window` accepted ones by this factor.
    """

    patience: int = 10  # [steps] Skipped steps in a row before the run returns to a checkpoint.
    # Skip a step whose gradient norm exceeds the mean by this factor, such as 6; 0: no limit. A run
    # cannot turn it on or off later.
    norm_factor: float = 0.0
    norm_window: int = 100  # [steps] Length of the mean of gradient norms.
    # [steps] Interval at which replicas are compared, also before each save; 0: never.
    replicas: int = 1_000
    # A run that cannot fit in memory: refuse it before compiling, warn and start, or do not
    # estimate. A run that only may not fit gets a warning, up to 64 times the memory.
    memory_check: Literal["refuse", "warn", "off"] = "refuse"

    def __post_init__(self) -> None:
        check_at_least(self, 1, "patience", "norm_window")
        check_at_least(self, 0, "norm_factor", "replicas")
        if 0 < self.norm_factor <= 1:
            raise ConfigError(
                f"Guard.norm_factor is {self.norm_factor:g}; it must be 0 or above 1, because a "
                "normal gradient norm may equal the mean"
            )


@dataclasses.dataclass(frozen=True)
class Mesh:
    """The number of devices along each axis; one of them may be -1: all remaining devices.

    Rows are sharded over data and fsdp, parameters over fsdp and model, the positions of long rows
    over `sequence` between blocks.
    """

    data: int = -1  # [devices] Data parallelism: replicas, each with its own rows.
    fsdp: int = 1  # [devices] Shards of parameters and optimizer state, each with its own rows.
    model: int = 1  # [devices] Shards of each layer's matrices (tensor parallelism).
    sequence: int = 1  # [devices] Shards of a row's positions between blocks.

    def __post_init__(self) -> None:
        if any(size < 1 and size != -1 for size in self.axis_sizes):
            raise ConfigError(f"mesh {self}: each is at least 1, and one of them may be -1")
        if self.axis_sizes.count(-1) > 1:
            raise ConfigError(f"mesh {self}: only one of them may be -1")

    @property
    def axis_sizes(self) -> tuple[int, int, int, int]:
        """The sizes of the axes data, fsdp, model and sequence."""
        return self.data, self.fsdp, self.model, self.sequence

    def __str__(self) -> str:
        return " x ".join(
            f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self)
        )


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """The evaluation on the whole held-out part, every `every` steps and after the last."""

    every: int = 10_000  # [steps] Interval of evaluations; 0: never.
    # Metrics of labels and answers, besides the loss.
    metrics: tuple[Literal[Metric, "unread_words", "null_threshold"], ...] = ()
    # Score the moving average of `train.ema_decay` beside the parameters, as ema/loss and so on.
    ema: bool = False
    samples: int = 4  # [rows] Held-out rows recorded with masks and predictions (docs/inside.md).
    # End the run after so many evaluations without a better checkpoint.best; 0: never.
    patience: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, 0, "every", "samples", "patience")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The checkpoints, saved every `every` steps and after the last.

    The newest `keep`, those at multiples of `keep_every` and at `words`, the best and pinned ones
    are not deleted.
    """

    every: int = 1_000  # [steps] Interval of saving.
    keep: int = 3  # Newest checkpoints to keep.
    keep_every: int = 0  # [steps] Also keep multiples of this; 0: none.
    # Also keep the checkpoint with the lowest loss or the highest metric of evaluate.metrics; '':
    # none. With `evaluate.ema`, ema/loss and so on choose by the scores of the moving average.
    best: str = ""
    words: tuple[int, ...] = ()  # [words] Also save and keep the first step that has read so many.

    def __post_init__(self) -> None:
        check_at_least(self, 1, "every", "keep", "words")
        check_at_least(self, 0, "keep_every")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The seconds after which a run counts as hung and ends with status 75; 0: no limit.

    The result does not depend on them, and they may be changed when a run continues. The defaults
    suit steps and batches of minutes.
    """

    kernels: float = 600.0  # [seconds] Comparing one kernel with the plain equations.
    start: float = 0.0  # [seconds] Initialising or restoring parameters.
    compile: float = 0.0  # [seconds] First step after each start; hours for the largest models.
    data: float = 1800.0  # [seconds] Waiting for one batch.
    # [seconds] Waiting for one step of all hosts; the first includes compilation.
    step: float = 1800.0
    evaluate: float = (
        7200.0  # [seconds] One batch of an evaluation; the first includes compilation.
    )
    save: float = 3600.0  # [seconds] Saving one checkpoint and deleting old ones.

    def __post_init__(self) -> None:
        check_at_least(self, 0, *(field.name for field in dataclasses.fields(self)))
