"""The sizes of RoBERTa."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """RoBERTa-base; the fields have the names of BERT's.

    Other sizes: configs/roberta_large.py.
    """

    module: ClassVar[str] = "roberta:RobertaForMaskedLM"
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {"first_position": ("pad", 1)}

    vocab: int = 50265
    length: int = 512  # [tokens] the longest row, special tokens included
    first_position: int = 2  # position of a row's first token: the padding's id plus 1
    segments: int = 1  # number of token types
    epsilon: float = 1e-5
