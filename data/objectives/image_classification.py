"""Image classification: predict the class of an image (Dosovitskiy et al. 2021, section 4).

What training changes at random is as in DeiT (Touvron et al. 2021, section 6 and table 9): crops,
RandAugment, random erasing, mixup, CutMix, repeated augmentation.

B rows   H height   W width   C channels
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from data.batch_spec import Field
from data.images.augmentation import MAX_MAGNITUDE
from data.images.image_files import MODES, check_pillow
from data.images.image_rows import ImageRows, make_image_builder
from data.images.mixing import MAX_ALPHA
from data.objectives.objective import BuildBatch, Objective
from data.rows.tables import RowTable
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class ImageClassification(Objective):
    """Rows of one image each, from a store that `prepare-images` writes."""

    name: ClassVar[str] = "image_classification"
    description: ClassVar[str] = "the classes of images, {size} x {size} pixels"

    unit: ClassVar[str] = "images"

    size: int = 224  # [pixels] height and width of an image
    channels: int = 3  # values of a pixel: 3 of red, green and blue, or 1 of brightness
    # In an evaluation the shorter side becomes size / crop_ratio pixels, and the center is read.
    crop_ratio: float = 0.875
    # Smallest share of an image's area that a training crop has; 1: the largest centered square.
    min_area: float = 0.08
    flip: bool = True  # whether half of the training images are mirror images
    num_ops: int = 0  # RandAugment: operations on a training image; 0: none
    magnitude: float = 9.0  # RandAugment: strength of the operations, from 0 to 10
    magnitude_deviation: float = 0.5  # the strength is drawn from within so much of it
    erase_rate: float = 0.0  # probability with which a rectangle becomes noise
    mixup: float = 0.0  # alpha of Beta(alpha, alpha), the share of one of two images; 0: none
    cutmix: float = 0.0  # alpha of the share that a rectangle of another image leaves; 0: none
    repeats: int = 1  # times that an image is read in a row, with other changes each time

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": pixels of a row}, and those of the axes of an image."""
        return {"L": self.size**2, "H": self.size, "W": self.size, "C": self.channels}

    def count_positions(self) -> int:
        """Return 1, the number of images of a row."""
        return 1

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

    def check_vocabulary(self, vocabulary: Vocabulary) -> NoReturn:
        """Raise a ValueError: a store with a vocabulary has no images."""
        raise ValueError(
            f"{self.name} reads images, and this is a token store: "
            "`prepare-images SOURCE --output STORE` writes a store of images"
        )

    def check_settings(self) -> None:
        """Raise a ValueError for a setting out of its range, or if Pillow is missing."""
        check_pillow()
        ranges = {
            "size": (1, 4096),
            "num_ops": (0, 16),
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
        for name in ("crop_ratio", "min_area"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{self.name}: {name}={getattr(self, name)}; a share above 0, up to 1"
                )
        if self.channels not in MODES:
            raise ValueError(f"{self.name}: channels={self.channels}; 1 or 3")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Raise a ValueError as `check_vocabulary`; images have `make_image_rows`."""
        self.check_vocabulary(vocabulary)

    def make_image_rows(self, split: Split, is_training: bool) -> tuple[ImageRows, BuildBatch]:
        """Return the table of images and the function that builds batches.

        is_training: whether images are changed at random, by draws of the keys.
        """
        table = ImageRows(split)
        return table, make_image_builder(self, table, is_training)
