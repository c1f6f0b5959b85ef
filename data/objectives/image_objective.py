"""What the objectives of images have in common: rows of one image each, cropped and mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from data.images.image_files import MODES, check_pillow
from data.objectives.objective import BuildBatch, Objective
from data.rows.tables import RowTable
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class ImageObjective(Objective):
    """Rows of one image each, from a store that `prepare-images` writes.

    A subclass makes batches in `make_image_rows`.

    SHARES: the fields that are above 0 and at most 1.
    """

    unit: ClassVar[str] = "images"
    text_documents: ClassVar[str] = ""
    reads_images: ClassVar[bool] = True
    SHARES: ClassVar[tuple[str, ...]] = ("crop_ratio", "min_area")

    size: int = 224  # [pixels] height and width of an image
    channels: int = 3  # values of a pixel: 3 for red, green and blue, 1 for brightness
    # evaluation resizes the shorter side to size / crop_ratio and reads the center; none: squashes
    # the image
    crop_ratio: float | None = 0.875
    # least share of an image in a training crop; 1: the largest centered square
    min_area: float = 0.08
    flip: bool = True  # mirror half of the training images

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": pixels of a row}, and the axes of an image."""
        return {"L": self.size**2, "H": self.size, "W": self.size, "C": self.channels}

    def count_positions(self) -> int:
        """Return 1, the number of images of a row."""
        return 1

    def check_vocabulary(self, vocabulary: Vocabulary) -> NoReturn:
        """Raise a ValueError: a store with a vocabulary has no images."""
        raise ValueError(
            f"{self.name} reads images, and this is a token store: "
            "`prepare-images SOURCE --output STORE` writes a store of images"
        )

    def list_image_options(self) -> dict[str, Any]:
        """Return how an exported image processor crops."""
        return {"crop_ratio": self.crop_ratio}

    def check_settings(self) -> None:
        """Raise a ValueError for a setting out of its range, or if Pillow is missing."""
        check_pillow()
        if not 1 <= self.size <= 4096:
            raise ValueError(f"{self.name}: size={self.size}; from 1 to 4096")
        if self.channels not in MODES:
            raise ValueError(f"{self.name}: channels={self.channels}; 1 or 3")
        for name in self.SHARES:
            share = getattr(self, name)
            if not (0 < share <= 1 if share is not None else name == "crop_ratio"):
                raise ValueError(f"{self.name}: {name}={share}; a share above 0, up to 1")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Raise a ValueError as `check_vocabulary`; images have `make_image_rows`."""
        self.check_vocabulary(vocabulary)
