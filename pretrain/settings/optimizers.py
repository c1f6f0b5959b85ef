"""The optimizers of a run. pretrain/training/optimizers/NAME.py builds each, NAME in lower case.

All inherit the fields of the learning rate's schedule, which pretrain/training/schedules.py reads.
"""

import dataclasses
from typing import Any, ClassVar, Literal, TypeAlias

from data.rows.ramp import CONSTANT, Ramp
from pretrain.settings.overrides import ConfigError, check_at_least

LEAST_EPSILON = 1e-30  # far above the least float32 that is not rounded to 0
LEAST_ONE = 1 - 2**-25  # the least number that float32 rounds to 1


def check_moments(optimizer: Any) -> None:
    """Raise ConfigError for settings with which Adam's update divides zero by zero.

    The correction of a mean divides by 1 - beta ** n. A parameter whose gradients are all 0, such
    as the embedding of a position after all rows, is divided by `epsilon` alone.
    """
    check_betas(optimizer, "beta1", "beta2")
    check_at_least(optimizer, LEAST_EPSILON, "epsilon")


def check_betas(optimizer: Any, *names: str) -> None:
    """Raise ConfigError unless the decays of means are at least 0 and below 1 in float32."""
    check_at_least(optimizer, 0, *names)
    for name in names:
        if not (beta := getattr(optimizer, name)) < LEAST_ONE:
            raise ConfigError(
                f"{type(optimizer).__name__}.{name} is {beta}; it must be below 1 in float32"
            )


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """The learning rate of an optimizer: a linear warmup to the peak, then `decay`."""

    learning_rate: float = 1e-4  # Peak of the learning rate.
    warmup_steps: int = 10_000  # [steps] Length of the linear warmup to the peak.
    end_lr_ratio: float = 0.0  # Last learning rate, as a share of the peak.
    # Decay after the warmup. `wsd` (warmup, stable, decay) stays at the peak until the cooldown.
    # `inverse_square_root` and `constant` have no end, so `end_lr_ratio` and `decay_steps` do
    # nothing.
    decay: Literal["linear", "cosine", "inverse_square_root", "constant", "wsd"] = "linear"
    decay_steps: int = 0  # [steps] Step at which the decay ends; 0: `train.steps`.
    # [steps] `wsd`: length of the cooldown, which ends with the decay; 0: a tenth of all steps.
    cooldown_steps: int = 0
    # `wsd`: a straight line, half a cosine, or 1 - sqrt(share of the cooldown that is over).
    cooldown_shape: Literal["linear", "cosine", "1-sqrt"] = "1-sqrt"
    # Factors by group of parameters, each PATTERN:RATE or PATTERN:RATE:DECAY, of the learning rate
    # and the weight decay, such as token_embedding:0.1,norm/*:1:0. `*` is any text; the first
    # pattern that is part of a parameter's path counts.
    groups: tuple[str, ...] = ()
    # Factor of the learning rate from each layer of a fine-tuned encoder to the one below, such as
    # 0.8; the top layer has it once, head and pooler keep their rate.
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(
                f"optimizer.layer_decay={self.layer_decay:g}: it must be above 0 and at most 1"
            )
        for text in self.groups:
            from pretrain.settings.group_text import parse_group  # what only some runs need

            if parse_group(text)[2] != 1 and isinstance(self, Adafactor):
                raise ConfigError(
                    f"optimizer.groups={text}: Adafactor has no weight decay; give PATTERN:RATE"
                )
        check_at_least(self, 0, "learning_rate", "warmup_steps", "end_lr_ratio", "decay_steps")
        check_at_least(self, 0, "cooldown_steps")

    def without_schedule(self) -> Any:
        """Return the same optimizer with a default schedule, for a shared program."""
        plain, names = type(self)(), (field.name for field in dataclasses.fields(LearningRate))
        return dataclasses.replace(self, **{name: getattr(plain, name) for name in names})

    def find_decay(self, steps: int) -> tuple[int, int]:
        """Return (step at which the decay ends, length of the cooldown) in a run of `steps`."""
        end = self.decay_steps or steps
        return end, self.cooldown_steps or max(end // 10, 1)

    def check_length(self, steps: int) -> None:
        """Raise ConfigError unless warmup and cooldown fit in a run of `steps`."""
        end, cooldown = self.find_decay(steps)
        if self.decay == "wsd" and self.warmup_steps + cooldown > end:
            raise ConfigError(
                f"optimizer.warmup_steps={self.warmup_steps:,} and a cooldown of {cooldown:,} "
                f"steps exceed the {end:,} steps of the schedule: lower optimizer.warmup_steps or "
                "optimizer.cooldown_steps"
            )


@dataclasses.dataclass(frozen=True)
class WeightDecay(LearningRate):
    """The learning rate and the weight decay of an optimizer."""

    weight_decay: float = 0.01  # Weight decay; biases and norms are spared.
    # Change of `weight_decay` over the steps. A run cannot turn it on or off later.
    weight_decay_ramp: Ramp = CONSTANT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "weight_decay")
        check_at_least(self.weight_decay_ramp, 0, "start")


@dataclasses.dataclass(frozen=True)
class AdamW(WeightDecay):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Defaults follow BERT (Devlin et al. 2018, appendix A.2). After a linear warmup the learning rate
    falls by `decay`: linearly or as half a cosine (Loshchilov and Hutter 2017) to its end, as the
    inverse square root of the step (Vaswani et al. 2017, section 5.3), or in a cooldown at the end
    (`wsd`; Hu et al. 2024, Hägele et al. 2024).
    """

    beta1: float = 0.9  # Decay of the gradients' mean.
    beta2: float = 0.999  # Decay of the squared gradients' mean.
    epsilon: float = 1e-6  # Added to the root that divides an update.
    max_grad_norm: float = 1.0  # Global norm that clips gradients; 0: no clipping.
    # Multiply each update by its parameter's root mean square, at least 1e-3, as Adafactor does. T5
    # needs it, because its initial sizes range from 0.008 to 1. Learning rates are then relative,
    # such as 0.01.
    scale_by_param_rms: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "max_grad_norm")
        check_moments(self)


@dataclasses.dataclass(frozen=True)
class StableAdamW(WeightDecay):
    """AdamW whose rate falls for a parameter with unusual gradients (Wortsman et al. 2023, sec. 3).

    Where the root mean square of gradient / sqrt(second moment) over a parameter exceeds 1, it
    divides the learning rate. This replaces the clipping of gradients. Defaults follow
    ModernBERT-base (Warner et al. 2024).
    """

    learning_rate: float = 8e-4
    weight_decay: float = 1e-5  # Weight decay; biases and norms are spared.
    # An update at the peak removes the share `weight_decay` of a parameter; false: `weight_decay`
    # times the learning rate, as AdamW does.
    decoupled: bool = True
    beta1: float = 0.9  # Decay of the gradients' mean.
    beta2: float = 0.98  # Decay of the squared gradients' mean.
    epsilon: float = 1e-6  # Added to the root that divides an update.
    max_grad_norm: float = 0.0  # Global norm that clips gradients; 0: no clipping.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "max_grad_norm")
        check_moments(self)

    def without_schedule(self) -> Any:
        """Return the same optimizer with a default schedule and its peak."""
        plain = super().without_schedule()
        return dataclasses.replace(plain, learning_rate=self.learning_rate)


@dataclasses.dataclass(frozen=True)
class Lion(WeightDecay):
    """Lion (Chen et al. 2023): each update is the sign of a mean of gradients, with one moment.

    The defaults are a tenth of AdamW's peak and ten times its weight decay, as the paper advises
    (section 5).
    """

    learning_rate: float = 1e-5
    weight_decay: float = 0.1  # Weight decay; biases and norms are spared.
    beta1: float = 0.9  # Share of the moment in the mean whose sign is the update.
    beta2: float = 0.99  # Decay of the moment, a mean of gradients.
    max_grad_norm: float = 1.0  # Global norm that clips gradients; 0: no clipping.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "max_grad_norm")
        check_betas(self, "beta1", "beta2")


@dataclasses.dataclass(frozen=True)
class Muon(WeightDecay):
    """Muon (Jordan et al. 2024) for the matrices of attention and MLPs, AdamW for all else.

    The update of a matrix is its momentum, orthogonalized by Newton-Schulz iterations, layer by
    layer. Tables, norms, biases, convolutions and heads have AdamW's updates. Learning rates of
    AdamW carry over (Liu et al. 2025, section 2.2, whose weight decay is the default).
    """

    newton_schulz_steps: ClassVar[int] = 5  # Iterations that make a matrix nearly orthogonal.
    epsilon: ClassVar[float] = 1e-6

    weight_decay: float = 0.1  # Weight decay; biases and norms are spared.
    momentum: float = 0.95  # Decay of the gradients' mean of a matrix; Nesterov's.
    # Root mean square of a matrix' update before the learning rate; 0.2 is about AdamW's. 0: an
    # orthogonal matrix times sqrt(max(1, outputs / inputs)), as Jordan's.
    consistent_rms: float = 0.2
    # Queries, keys, values and outputs of each head are matrices; false: all heads' are one.
    per_head: bool = True
    beta1: float = 0.9  # Decay of the gradients' mean.
    beta2: float = 0.999  # Decay of the squared gradients' mean.
    max_grad_norm: float = 1.0  # Global norm that clips gradients; 0: no clipping.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "consistent_rms", "max_grad_norm")
        check_betas(self, "momentum")
        check_moments(self)


@dataclasses.dataclass(frozen=True)
class Adafactor(LearningRate):
    """Adafactor (Shazeer and Stern 2018) as in T5: updates are relative to the parameters' size."""

    learning_rate: float = 1.0  # Factor of `rsqrt`, 1 in the paper; peak of the other decays.
    # [steps] `rsqrt`: the rate is constant until then. Other decays: length of the linear warmup.
    warmup_steps: int = 10_000
    # `rsqrt`: learning_rate / sqrt(max(step, warmup_steps)), without warmup and end. The others
    # follow a linear warmup. `wsd` (warmup, stable, decay) stays at the peak until the cooldown.
    decay: Literal["rsqrt", "linear", "cosine", "inverse_square_root", "constant", "wsd"] = "rsqrt"
    # Largest root mean square of an update, before the learning rate; the paper's d.
    clipping_threshold: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1e-6, "clipping_threshold")


@dataclasses.dataclass(frozen=True)
class Lamb(WeightDecay):
    """LAMB (You et al. 2020, algorithm 2); the defaults are ALBERT's (Lan et al. 2020, sec. 4.1).

    Scale AdamW's update to the norm of each weight matrix, so that batches of thousands of rows can
    take large steps. Biases and norms are not scaled.
    """

    learning_rate: float = 0.00176  # Peak of the learning rate.
    warmup_steps: int = 3_125  # [steps] Length of the linear warmup to the peak.
    beta1: float = 0.9  # Decay of the gradients' mean.
    beta2: float = 0.999  # Decay of the squared gradients' mean.
    epsilon: float = 1e-6  # Added to the root that divides an update.
    max_grad_norm: float = 1.0  # Global norm that clips gradients; 0: no clipping.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "max_grad_norm")
        check_moments(self)


Optimizer: TypeAlias = AdamW | Adafactor | Lamb | StableAdamW | Lion | Muon
