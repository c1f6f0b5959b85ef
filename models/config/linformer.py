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
    segments: int = 1  # number of token types: all tokens have the same one
    epsilon: float = 1e-5
    rank: int = 256  # k: the mixtures of positions that a query attends to, at most `length`
    # which projections are the same matrix: "none"; "headwise" all heads of a layer, one for
    # keys and one for values; "key-value" keys and values, too; "layerwise" all layers, too
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "layerwise"
