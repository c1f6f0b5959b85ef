"""A setting that changes over the steps of a run.

Its value is a function of the step alone, so any host computes any step, and a resumed run goes on
with the same bits.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Ramp:
    """The way of a setting from another value to its own, between two steps."""

    start: float | None = None  # Value up to the first step; none: the setting is constant.
    first_step: int = 0  # [steps] Steps before the value changes.
    last_step: int = 0  # [steps] Step from which on the setting has its own value.
    shape: Literal["linear", "cosine"] = "linear"  # A straight line, or half a cosine.

    def __post_init__(self) -> None:
        """Raise ValueError for a ramp that ends before it begins, or has no start."""
        if self.start is None:
            if self.last_step or self.first_step:
                raise ValueError(f"a ramp to step {self.last_step} needs a start: set its `start`")
        elif not 0 <= self.first_step < self.last_step:
            raise ValueError(
                f"a ramp from step {self.first_step} to step {self.last_step} ends before it "
                "begins: set its `last_step` above its `first_step`, which is 0 or more"
            )

    @property
    def is_constant(self) -> bool:
        """Whether the setting has its own value at every step."""
        return self.start is None

    def compute_values(self, steps: Any, end: float) -> "np.ndarray":
        """Return the values at steps, float64; `end` is the setting's own value."""
        import numpy as np  # not for the settings of a run, which have no other need of it

        if self.start is None:
            return np.full(np.shape(steps), end)
        length = self.last_step - self.first_step
        over = np.clip((np.asarray(steps) - self.first_step) / length, 0.0, 1.0)
        if self.shape == "cosine":
            over = (1 - np.cos(np.pi * over)) / 2
        return self.start + (end - self.start) * over


@dataclass(frozen=True)
class BatchRamp:
    """The rise of the batch from a first size to its own, each size for as many steps.

    With a length in tokens each size reads tokens in proportion to itself, as ModernBERT's warm-up
    of the batch does (Warner et al. 2024, section 2.3). Each size compiles a program.
    """

    start: int | None = None  # [rows] First size; none: the batch has its own size at every step.
    steps: int = 0  # [steps] Length, if `tokens` is 0.
    tokens: int = 0  # [tokens] Length, padding included; each size ends with a whole step.
    rise: int = 0  # [rows] What a size has more than the one before; 0: as many as `start`.


CONSTANT, FULL_BATCH = Ramp(), BatchRamp()
