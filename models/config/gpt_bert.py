"""The sizes of GPT-BERT."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptBertConfig(ModelConfig):
    """The larger GPT-BERT, 119.5 M parameters."""

    module: ClassVar[str] = "gpt_bert:GptBert"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "max_distance")

    vocab: int = 16384
    length: int = 512  # [tokens] the longest row; more need no new parameters
    mlp: int = 2560  # width of a feed-forward network's hidden layer, which is gated
    attention_dropout: float = 0.1  # rate of the attention weights and of the distances' embeddings
    buckets: int = 32  # ranges of distances on each side; half of them hold one distance each
    max_distance: int = 512  # [tokens] distances from here on share the last bucket
    scan: bool = False  # has no effect: each layer reads all earlier ones, so none is scanned
