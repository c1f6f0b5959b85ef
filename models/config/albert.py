"""The sizes of ALBERT."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """ALBERT-base; `embedding` is the paper's E, `width` its H. Large: 1024, 24, 16, mlp 4096; xlarge: 2048, 24, 32, 8192.

    xxlarge: 4096, 12, 64, 16384.
    """

    module: ClassVar[str] = "albert:AlbertForPretraining"
    shares_layers: ClassVar[bool] = True

    vocab: int = 30000
    embedding: int = 128  # the width of a token's vector
    depth: int = 12  # how often the one layer is applied
