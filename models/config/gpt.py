"""The sizes of GPT."""

import dataclasses
from typing import ClassVar

from models.config.base import DecoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(DecoderConfig):
    """GPT's one size, 116.5 M parameters."""

    module: ClassVar[str] = "gpt:Gpt"

    vocab: int = 40478
    length: int = 512  # [tokens] the longest row, special tokens included
    attention_dropout: float = 0.1  # rate of the attention weights
    embedding_dropout: float | None = None  # rate after the embeddings; none: `dropout`

    @property
    def embedding_dropout_rate(self) -> float:
        """The dropout rate of the embeddings."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout
