"""The sizes of ALBERT."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """ALBERT-base; `embedding` is the paper's E, `width` its H.

    Other sizes: configs/albert_*.py.
    """

    module: ClassVar[str] = "albert:AlbertForPretraining"
    shares_layers: ClassVar[bool] = True

    vocab: int = 30000
    embedding: int = 128  # width of the token embeddings
    depth: int = 12  # [layers] times that the one layer is applied
