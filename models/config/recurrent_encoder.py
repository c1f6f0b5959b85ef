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
    bidirectional: bool = False  # whether a second layer reads rows from their ends
    # of the last layer's outputs: "last" the last one that each direction reads; "mean" and "max"
    # are over all words
    pooling: Literal["last", "mean", "max"] = "last"
