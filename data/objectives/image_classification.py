"""Image classification: predict the class of an image (Dosovitskiy et al. 2021, section 4).

What training changes at random is what DeiT lists (Touvron et al. 2021, section 6 and table 9):
crops, RandAugment, random erasing, mixup, CutMix, repeated augmentation.

B rows   H height   W width   C channels
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from data.batch_spec import Field
from data.images.augmentation import MAX_MAGNITUDE
from data.images.image_rows import ImageRows, make_image_builder
from data.images.mixing import MAX_ALPHA
from data.objectives.image_objective import ImageObjective
from data.objectives.objective import BuildBatch
from data.store.split import Split


@dataclass(frozen=True)
class ImageClassification(ImageObjective):
    """Rows of one image each, from a store that `prepare-images` writes."""

    name: ClassVar[str] = "image_classification"
    description: ClassVar[str] = "the classes of images, {size} x {size} pixels"

    num_ops: int = 0  # RandAugment: operations per training image; 0: none
    op_rate: float = 1.0  # RandAugment: probability of each drawn operation
    magnitude: float = 9.0  # RandAugment: strength of the operations, from 0 to 10
    magnitude_deviation: float = 0.5  # RandAugment: each strength is magnitude +- this
    erase_rate: float = 0.0  # probability that a rectangle becomes noise
    mixup: float = 0.0  # alpha of Beta(alpha, alpha), one image's share of two; 0: none
    cutmix: float = 0.0  # alpha of the share that another image's rectangle leaves; 0: none
    repeats: int = 1  # times in a row that an image is read, with other changes

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        fields = {
            "pixels": Field("uint8", "BHWC"),
            "labels": Field("int32", "B"),  # the number of a class
            "row_weights": Field("float32", "B"),  # 1.0 for a row
        }
        if self.mixup or self.cutmix:
            fields["mixed_labels"] = Field("int32", "B")  # the class of the other image
            fields["label_shares"] = Field("float32", "B")  # the share of `labels`
        return fields

    def check_settings(self) -> None:
        """Raise a ValueError for a setting out of its range, or if Pillow is missing."""
        super().check_settings()
        ranges = {
            "num_ops": (0, 16),
            "op_rate": (0, 1),
            "magnitude": (0, MAX_MAGNITUDE),
            "magnitude_deviation": (0, MAX_MAGNITUDE),
            "erase_rate": (0, 1),
            "mixup": (0, MAX_ALPHA),
            "cutmix": (0, MAX_ALPHA),
            "repeats": (1, 100),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"{self.name}: {name}={getattr(self, name)}; from {low} to {high:g}"
                )

    def make_image_rows(self, split: Split, is_training: bool) -> tuple[ImageRows, BuildBatch]:
        """Return the table of images and the function that builds batches.

        is_training: whether images are changed at random, by draws of the keys.
        """
        table = ImageRows(split)
        return table, make_image_builder(self, table, is_training)
