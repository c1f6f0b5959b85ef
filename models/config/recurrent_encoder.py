"""The sizes of recurrent encoders of words."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import WordEncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentEncoderConfig(WordEncoderConfig):
    """A layer of 168 LSTM cells, as the smallest of Tai et al. (2015, table 1)."""

    module: ClassVar[str] = "recurrent_encoder:RecurrentEncoder"

    cell: Literal["lstm", "elman"] = "lstm"  # of all layers
    depth: int = 1  # [layers] of recurrence
    cells: int = 168  # of each layer and direction
    bidirectional: bool = False  # a second layer reads rows backwards
    # "last": each direction's last output; "mean", "max": over all words
    pooling: Literal["last", "mean", "max"] = "last"
