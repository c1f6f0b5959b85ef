"""The optimizers that a run may name. Each is built by pretrain/training/optimizers/NAME.py, NAME being the class's in lower case.

All have what a schedule of pretrain/training/schedules.py takes. What an optimizer does not let a run choose is a class variable.
"""

import dataclasses
from typing import ClassVar, Literal, TypeAlias

from pretrain.overrides import at_least


@dataclasses.dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); the defaults are BERT's (Devlin et al. 2018, A.2).

    The rate climbs linearly, then falls as `decay` says: to the end linearly or by half a cosine (Loshchilov and Hutter 2017), or as
    the inverse square root of the step, without end (Vaswani et al. 2017, section 5.3).
    """

    learning_rate: float = 1e-4  # Peak of the learning rate.
    warmup_steps: int = 10_000  # [steps] Length of the linear climb to the peak.
    end_lr_ratio: float = 0.0  # Last learning rate, as a share of the peak.
    # How the rate falls after its climb; `inverse_square_root` has no end and reads neither `end_lr_ratio` nor `decay_steps`.
    decay: Literal["linear", "cosine", "inverse_square_root"] = "linear"
    decay_steps: int = 0  # [steps] Step at which the rate has reached its end; 0: `train.steps`.
    weight_decay: float = 0.01  # Factor of weight decay. Biases and norms are not decayed.
    beta1: float = 0.9  # Decay of the mean of the gradients.
    beta2: float = 0.999  # Decay of the mean of the squared gradients.
    epsilon: float = 1e-6  # Added to the square root that an update is divided by.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to; 0: no clipping.
    # Multiply each parameter's update by its root mean square, at least 1e-3, as Adafactor does. T5 needs it, whose parameters begin
    # between 0.008 and 1 in size. The rate is then a relative one, such as 0.01.
    scale_by_param_rms: bool = False

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup_steps", "end_lr_ratio", "decay_steps")
        at_least(self, 0, "weight_decay", "beta1", "beta2", "epsilon", "max_grad_norm")


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern 2018) as T5 used it: each update is scaled by its parameter's root mean square."""

    end_lr_ratio: ClassVar[float] = 0.0
    decay_steps: ClassVar[int] = 0

    learning_rate: float = 1.0  # Factor of `rsqrt`, where the paper's is 1; peak of `linear`.
    # [steps] `rsqrt`: the rate is constant up to this step. `linear`: length of the climb.
    warmup_steps: int = 10_000
    # `rsqrt`: learning_rate / sqrt(max(step, warmup_steps)). `linear`: a climb, then a line to 0 at the end of the run.
    decay: Literal["rsqrt", "linear"] = "rsqrt"
    # Largest root mean square of a parameter's update, before the rate; the paper's d.
    clipping_threshold: float = 1.0

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup_steps")
        at_least(self, 1e-6, "clipping_threshold")


@dataclasses.dataclass(frozen=True)
class Lamb:
    """LAMB (You et al. 2020, algorithm 2); the defaults are ALBERT's (Lan et al. 2020, section 4.1, and their code).

    AdamW's update of each weight matrix of each layer, scaled to the length of the matrix itself: batches of thousands of rows can
    then take large steps. Biases and norms are neither decayed nor scaled. The rate climbs linearly, then falls linearly.
    """

    decay: ClassVar[str] = "linear"
    decay_steps: ClassVar[int] = 0

    learning_rate: float = 0.00176  # Peak of the learning rate.
    warmup_steps: int = 3_125  # [steps] Length of the linear climb to the peak.
    end_lr_ratio: float = 0.0  # Last learning rate, as a share of the peak.
    weight_decay: float = 0.01  # Factor of weight decay. Biases and norms are not decayed.
    beta1: float = 0.9  # Decay of the mean of the gradients.
    beta2: float = 0.999  # Decay of the mean of the squared gradients.
    epsilon: float = 1e-6  # Added to the square root that an update is divided by.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to; 0: no clipping.

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup_steps", "end_lr_ratio")
        at_least(self, 0, "weight_decay", "beta1", "beta2", "epsilon", "max_grad_norm")


Optimizer: TypeAlias = AdamW | Adafactor | Lamb
