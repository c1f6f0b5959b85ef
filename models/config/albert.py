"""The sizes of ALBERT."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """ALBERT-base; `embedding` is the paper's E, `width` its H.

    Width, depth, heads and mlp of the others: large 1024, 24, 16, 4096; xlarge 2048, 24, 32, 8192;
    xxlarge 4096, 12, 64, 16384.
    """

    module: ClassVar[str] = "albert:AlbertForPretraining"
    shares_layers: ClassVar[bool] = True

    vocab: int = 30000
    embedding: int = 128  # width of the token embeddings
    depth: int = 12  # [layers] times that the one layer is applied
