"""The sizes of GPT."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(ModelConfig):
    """GPT's one size, 116.5 M parameters."""

    module: ClassVar[str] = "gpt:Gpt"

    vocab: int = 40478
    length: int = 512  # [tokens] the longest row, because positions are learned
    attention_dropout: float = 0.1  # rate, of the attention weights
