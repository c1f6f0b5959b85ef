"""Configuration of multiple choice: a pretrained encoder that chooses a text. No JAX."""

import dataclasses
from typing import ClassVar

from models.config.heads import HeadedConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceConfig(HeadedConfig):
    """One score for each choice of a question; the number of choices is free."""

    module: ClassVar[str] = "heads.multiple_choice:Chooser"
    objectives: ClassVar[tuple[str, ...]] = ("multiple_choice",)
