"""The sizes of the Music Transformer."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class MusicTransformerConfig(ModelConfig):
    """The model of piano performances: 6 layers of width 256 (Huang et al. 2018, section 4.2)."""

    module: ClassVar[str] = "music_transformer:MusicTransformer"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("max_distance",)

    vocab: int = 390  # 388 events, and the end of a piece
    width: int = 256
    depth: int = 6
    num_heads: int = 8
    head_width: int = 64  # of each attention head
    mlp: int = 1024
    attention_dropout: float = 0.1  # rate of the attention weights
    # score the distance of query and key; false: the paper's baseline, with sinusoids alone
    relative: bool = True
    # [tokens] distances with their own embedding; longer ones share the last
    max_distance: int = 1024
