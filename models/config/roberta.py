"""The sizes of RoBERTa."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """RoBERTa-base; the fields have the names of BERT's.

    Large: width 1024, depth 24, heads 16, mlp 4096.
    """

    module: ClassVar[str] = "roberta:RobertaForMaskedLM"
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {"first_position": ("pad", 1)}

    vocab: int = 50265
    length: int = 512  # [tokens] the longest row, <s> and </s> included
    # row of the position table for a row's first token: the id of the padding, 1 in its vocabulary,
    # plus 1
    first_position: int = 2
    segments: int = 1  # number of token types: all tokens have the same one
    epsilon: float = 1e-5
