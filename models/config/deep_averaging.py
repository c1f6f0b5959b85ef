"""The sizes of the deep averaging network, and of the models that it extends."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import WordEncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepAveragingConfig(WordEncoderConfig):
    """Three hidden layers, a third of the words dropped (Iyyer et al. 2015, section 4)."""

    module: ClassVar[str] = "deep_averaging:DeepAveraging"
    zero_fields: ClassVar[tuple[str, ...]] = ("depth", "cls_id", "sep_id")

    depth: int = 3  # [layers] hidden layers above the average; 0 for a linear model
    hidden: int = 300  # width of the hidden layers
    activation: Literal["relu", "tanh"] = "relu"  # of the hidden layers
    combine: Literal["mean", "sum"] = "mean"  # of the embeddings of a row
    word_dropout: float = 0.3  # rate at which training drops words
    ngrams: int = 1  # [words] longest n-gram with an embedding
    buckets: int = 1 << 18  # rows of the n-gram embeddings, to which n-grams are hashed
