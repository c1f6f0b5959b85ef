"""The optimizers of a run. pretrain/training/optimizers/NAME.py builds each, NAME in lower case.

All have the fields that a schedule of pretrain/training/schedules.py reads. A value that is not
configurable for an optimizer is a class variable.
"""

import dataclasses
from typing import Any, ClassVar, Literal, TypeAlias

from pretrain.settings.overrides import ConfigError, check_at_least

LEAST_EPSILON = 1e-30  # far above the least float32 that is not rounded to 0
LEAST_ONE = 1 - 2**-25  # the least number that float32 rounds to 1


def check_moments(optimizer: Any) -> None:
    """Raise ConfigError for settings with which Adam's update divides zero by zero.

    The correction of a mean divides by 1 - beta ** n. A parameter whose gradients are all 0, such
    as the embedding of a position after all rows, is divided by `epsilon` alone.
    """
    for name in ("beta1", "beta2"):
        if not (beta := getattr(optimizer, name)) < LEAST_ONE:
            raise ConfigError(
                f"{type(optimizer).__name__}.{name} is {beta}; it must be below 1 in float32"
            )
    check_at_least(optimizer, LEAST_EPSILON, "epsilon")


@dataclasses.dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    The defaults are BERT's (Devlin et al. 2018, appendix A.2). The learning rate has a linear
    warmup, then falls by `decay`: linearly or as half a cosine (Loshchilov and Hutter 2017) to its
    end, or as the inverse square root of the step, without end (Vaswani et al. 2017, section 5.3).
    """

    learning_rate: float = 1e-4  # Peak of the learning rate.
    warmup_steps: int = 10_000  # [steps] Length of the linear warmup to the peak.
    end_lr_ratio: float = 0.0  # Last learning rate, as a share of the peak.
    # Decay after the warmup; `inverse_square_root` has no end and ignores `end_lr_ratio` and
    # `decay_steps`.
    decay: Literal["linear", "cosine", "inverse_square_root"] = "linear"
    decay_steps: int = 0  # [steps] Step at which the rate reaches its end; 0: `train.steps`.
    weight_decay: float = 0.01  # Coefficient of weight decay. Biases and norms are not decayed.
    beta1: float = 0.9  # Decay of the mean of the gradients.
    beta2: float = 0.999  # Decay of the mean of the squared gradients.
    epsilon: float = 1e-6  # Added to the square root by which an update is divided.
    max_grad_norm: float = 1.0  # Global norm to which gradients are clipped; 0: no clipping.
    # Multiply each parameter's update by the parameter's root mean square, at least 1e-3, as
    # Adafactor does. T5 needs it, because its parameters are initialised at sizes between 0.008 and
    # 1. The learning rate is then relative, such as 0.01.
    scale_by_param_rms: bool = False

    def __post_init__(self) -> None:
        check_at_least(self, 0, "learning_rate", "warmup_steps", "end_lr_ratio", "decay_steps")
        check_at_least(self, 0, "weight_decay", "beta1", "beta2", "max_grad_norm")
        check_moments(self)


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern 2018) as in T5: updates are relative to the parameters' size."""

    end_lr_ratio: ClassVar[float] = 0.0
    decay_steps: ClassVar[int] = 0

    learning_rate: float = 1.0  # Factor of `rsqrt`, 1 in the paper; peak of `linear`.
    # [steps] `rsqrt`: the rate is constant up to this step. `linear`: length of the warmup.
    warmup_steps: int = 10_000
    # `rsqrt`: learning_rate / sqrt(max(step, warmup_steps)). `linear`: a linear warmup, then linear
    # decay to 0 at the end of the run.
    decay: Literal["rsqrt", "linear"] = "rsqrt"
    # Largest root mean square of an update before the learning rate; the paper's d.
    clipping_threshold: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(self, 0, "learning_rate", "warmup_steps")
        check_at_least(self, 1e-6, "clipping_threshold")


@dataclasses.dataclass(frozen=True)
class Lamb:
    """LAMB (You et al. 2020, algorithm 2); the defaults are ALBERT's (Lan et al. 2020, sec. 4.1).

    The update is AdamW's, scaled to the norm of each weight matrix of each layer, which allows
    large steps for batches of thousands of rows. Biases and norms are neither decayed nor scaled.
    The learning rate has a linear warmup, then linear decay.
    """

    decay: ClassVar[str] = "linear"
    decay_steps: ClassVar[int] = 0

    learning_rate: float = 0.00176  # Peak of the learning rate.
    warmup_steps: int = 3_125  # [steps] Length of the linear warmup to the peak.
    end_lr_ratio: float = 0.0  # Last learning rate, as a share of the peak.
    weight_decay: float = 0.01  # Coefficient of weight decay. Biases and norms are not decayed.
    beta1: float = 0.9  # Decay of the mean of the gradients.
    beta2: float = 0.999  # Decay of the mean of the squared gradients.
    epsilon: float = 1e-6  # Added to the square root by which an update is divided.
    max_grad_norm: float = 1.0  # Global norm to which gradients are clipped; 0: no clipping.

    def __post_init__(self) -> None:
        check_at_least(self, 0, "learning_rate", "warmup_steps", "end_lr_ratio")
        check_at_least(self, 0, "weight_decay", "beta1", "beta2", "max_grad_norm")
        check_moments(self)


Optimizer: TypeAlias = AdamW | Adafactor | Lamb
