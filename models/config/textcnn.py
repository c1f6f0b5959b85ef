"""The sizes of convolutional encoders of words."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import WordEncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextCnnConfig(WordEncoderConfig):
    """One layer of 100 filters each over 3, 4 and 5 words (Kim 2014, section 3.1)."""

    module: ClassVar[str] = "textcnn:TextCnn"

    depth: int = 1  # [layers] of convolutions
    windows: tuple[int, ...] = (3, 4, 5)  # [positions] read by the filters of a layer
    filters: int = 100  # of each window
    activation: Literal["relu", "tanh"] = "relu"  # of each layer
    pooling: Literal["max", "mean"] = "max"  # over the positions of the last layer

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.windows or min(self.windows) < 1 or len({*self.windows}) < len(self.windows):
            raise ValueError(
                f"windows are {self.windows}; there must be at least one, of 1 or more positions, "
                "all different"
            )
