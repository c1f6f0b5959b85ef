"""The sizes of BART."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BartConfig(ModelConfig):
    """BART-base; the names are T5's and RoBERTa's. Large: 1024, 12, 12, heads 16, mlp 4096."""

    module: ClassVar[str] = "bart:Bart"
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {
        "first_position": ("pad", 1),
        "start": ("eos", 0),
    }

    vocab: int = 50265
    length: int = 1024  # the longest row on either side, <s> and </s> included
    first_position: int = (
        2  # the number of a row's first position: behind the padding's id, as RoBERTa's
    )
    start: int = (
        2  # the id that a decoder reads before the first one of a target: </s> in its vocabulary
    )
    depth: int = 6
    decoder_depth: int = 6  # [layers] of the decoder
    attention_dropout: float = 0.0  # rate, of the attention weights; the paper names none
