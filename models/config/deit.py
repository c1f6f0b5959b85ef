"""The sizes of DeiT with its distillation token."""

import dataclasses
from typing import ClassVar

from models.config.base import PatchConfig, Pixels

# Of the training images of ImageNet.
IMAGENET = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeitConfig(PatchConfig):
    """DeiT-B with distillation (Touvron et al. 2021, tables 1 and 9).

    Other sizes: configs/deit_*.py. A DeiT without the distillation token is a ViT.
    """

    module: ClassVar[str] = "deit:DistilledVisionTransformer"

    # The channels of an image, and how the model normalises them.
    pixels: Pixels = IMAGENET
    path_dropout: float = 0.1

    @property
    def num_tokens(self) -> int:
        """The number of learned tokens before the patches: of the class and of the distillation."""
        return 2
