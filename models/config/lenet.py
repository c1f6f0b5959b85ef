"""The sizes of LeNet-5."""

import dataclasses
from typing import ClassVar

from models.config.base import ImageConfig, Pixels

# 0 becomes -0.1 and 255 becomes 1.175, so that mean and variance of a digit are about 0 and 1.
DIGITS = Pixels(mean=(20 / 255,), std=(200 / 255,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LenetConfig(ImageConfig):
    """LeNet-5 on digits of 28 x 28 pixels (LeCun et al. 1998, section II.B)."""

    module: ClassVar[str] = "lenet:Lenet"
    has_attention: ClassVar[bool] = False
    num_heads: ClassVar[int] = 1
    remat: ClassVar[bool] = False
    not_in_tensors: ClassVar[tuple[str, ...]] = ("image_size", "padding")
    zero_fields: ClassVar[tuple[str, ...]] = ("padding",)

    image_size: int = 28  # [pixels] height and width of an image
    padding: int = 2  # [pixels] zeros added on each side of an image
    classes: int = 10  # classes that the head scores, at least as many as the data has
    # The channels of an image, and how the model normalises them.
    pixels: Pixels = DIGITS

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.image_size + 2 * self.padding
        if size < 16 or size % 4:
            raise ValueError(
                f"image_size={self.image_size} with padding={self.padding} on each side is "
                f"{size}; it must be a multiple of 4 from 16 up, because maps are halved twice"
            )

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the parameters that no optimizer updates: the codes of the classes."""
        return ("output/codes",)
