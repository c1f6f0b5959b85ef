"""Distillation: masked language modelling with the predictions of a larger model as targets.

Sanh et al. (2019), section 2. The batches are those of `masked_lm`.
"""

from dataclasses import dataclass
from typing import ClassVar

from data.objectives.masked_lm import MaskedLm


@dataclass(frozen=True)
class Distillation(MaskedLm):
    """Rows of masked_lm, on which the loss compares the model with a teacher."""

    name: ClassVar[str] = "distillation"
    description: ClassVar[str] = (
        "masked tokens ({mask_rate:.0%}) and a larger model's predictions of them, rows of {length}"
    )
