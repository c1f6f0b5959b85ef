"""Distillation: masked words as BERT's, of which a teacher is asked as well (Sanh et al. 2019, section 3). The batch is `masked_lm`'s."""

from dataclasses import dataclass
from typing import ClassVar

from data.objectives.masked_lm import MaskedLm


@dataclass(frozen=True)
class Distillation(MaskedLm):
    name: ClassVar[str] = "distillation"
    description: ClassVar[str] = (
        "masked words ({mask_rate:.0%}), and what a larger model thinks of them, rows of {length}"
    )
