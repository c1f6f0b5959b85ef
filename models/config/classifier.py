"""Configuration of classifiers: a pretrained encoder that scores whole texts. No JAX."""

import dataclasses
from typing import ClassVar

from models.config.heads import HeadedConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(HeadedConfig):
    """A score for each label, or the one score of a regression without labels."""

    module: ClassVar[str] = "heads.classifier:Classifier"
    objectives: ClassVar[tuple[str, ...]] = ("classification", "regression")

    labels: tuple[str, ...] = ("0", "1")  # names of the classes, in the order of the logits

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"labels are {self.labels}; there must be at least two, all different, or none for "
                "a regression"
            )

    @property
    def num_outputs(self) -> int:
        """The number of scores."""
        return len(self.labels) or 1
