"""The sizes of RoBERTa."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """RoBERTa-base; the names are BERT's. Large: 1024, 24, 16, mlp 4096."""

    module: ClassVar[str] = "roberta:RobertaForMaskedLM"
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {"first_position": ("pad", 1)}

    vocab: int = 50265
    length: int = 512  # the longest row, <s> and </s> included
    first_position: int = 2  # the number of a row's first position: behind the padding's id, which is 1 in its vocabulary
    segments: int = 1  # all tokens add the same vector: no two segments are distinguished
    epsilon: float = 1e-5
