"""Distillation of image classifiers: a teacher's predictions are targets in addition to the labels.

Touvron et al. (2021), section 4. The batches are as in `image_classification`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from data.objectives.image_classification import ImageClassification


@dataclass(frozen=True)
class ImageDistillation(ImageClassification):
    """Rows of image_classification, on which the loss compares the model with a teacher."""

    name: ClassVar[str] = "image_distillation"
    description: ClassVar[str] = (
        "the classes of images, {size} x {size} pixels, and a trained model's predictions of them"
    )

    # the teacher's "hard" likeliest class, or its "soft" distribution
    targets: Literal["hard", "soft"] = "hard"
    # share of the loss that compares with the teacher; none: the paper's 0.5 (hard) or 0.1 (soft)
    teacher_share: float | None = None
    temperature: float = 3.0  # softens both distributions ("soft")

    def check_settings(self) -> None:
        """Raise a ValueError for a setting out of its range, or if Pillow is missing."""
        super().check_settings()
        if not 0 <= self.distillation_weight <= 1:
            raise ValueError(f"{self.name}: teacher_share={self.teacher_share}; from 0 to 1")
        if not 0 < self.temperature < 1000:
            raise ValueError(
                f"{self.name}: temperature={self.temperature}; above 0 and below 1,000"
            )

    @property
    def distillation_weight(self) -> float:
        """The share of the loss that compares with the teacher."""
        if self.teacher_share is not None:
            return self.teacher_share
        return 0.5 if self.targets == "hard" else 0.1
