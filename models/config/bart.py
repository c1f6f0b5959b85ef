"""The sizes of BART."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BartConfig(ModelConfig):
    """BART-base; the fields have the names of T5's and RoBERTa's.

    Other sizes: configs/bart_large.py.
    """

    module: ClassVar[str] = "bart:Bart"
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {
        "first_position": ("pad", 1),
        "start": ("eos", 0),
    }

    vocab: int = 50265
    length: int = 1024  # [tokens] the longest row, special tokens included
    first_position: int = 2  # position of a row's first token: the padding's id plus 1
    start: int = 2  # id that the decoder reads first: </s>
    depth: int = 6
    decoder_depth: int = 6  # [layers] of the decoder
    attention_dropout: float = 0.0  # rate of the attention weights

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of the encoder and of the decoder."""
        return self.depth, self.decoder_depth
