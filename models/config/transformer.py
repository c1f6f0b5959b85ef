"""The sizes of the Transformer."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """The base model of English-German; `width` is the paper's d_model, `mlp` its d_ff.

    Other sizes: configs/transformer_big.py.
    """

    module: ClassVar[str] = "transformer:Transformer"

    vocab: int = 37000
    width: int = 512
    depth: int = 6
    decoder_depth: int = 6  # [layers] of the decoder
    num_heads: int = 8
    mlp: int = 2048
    attention_dropout: float = 0.0  # rate of the attention weights

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of the encoder and of the decoder."""
        return self.depth, self.decoder_depth
