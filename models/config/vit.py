"""The sizes of ViT."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import PatchConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class VitConfig(PatchConfig):
    """ViT-B/16 (Dosovitskiy et al. 2021, table 1).

    Other sizes: configs/vit_*.py.
    """

    module: ClassVar[str] = "vit:VisionTransformer"

    # what the head reads: "cls" the class token; "mean" the mean patch, without a class token
    # (appendix D.3); "patches" each patch, to score mean colors (appendix B.1.2)
    pooling: Literal["cls", "mean", "patches"] = "cls"

    @property
    def num_tokens(self) -> int:
        """The number of learned tokens before the patches."""
        return 0 if self.pooling == "mean" else 1

    @property
    def predicts_patches(self) -> bool:
        """Whether the model predicts the mean colors of masked patches."""
        return self.pooling == "patches"
