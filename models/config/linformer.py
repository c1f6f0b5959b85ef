"""The sizes of Linformer."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinformerConfig(EncoderConfig):
    """RoBERTa-base with rows of n = 512, projected to k = 256 (Wang et al. 2020, section 5.1)."""

    module: ClassVar[str] = "linformer:LinformerForMaskedLM"
    mixes_positions: ClassVar[bool] = True

    vocab: int = 50265
    segments: int = 1  # number of token types
    epsilon: float = 1e-5
    rank: int = 256  # k: mixtures of positions that a query attends to, at most `length`
    # one projection for: "headwise" all heads of a layer; "key-value" also keys and values;
    # "layerwise" also all layers
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "layerwise"
