"""The sizes of ELECTRA."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA-base; the generator has a third or a quarter of the discriminator's width (table 6).

    Embedding, width, depth, heads, mlp, and the generator's width, heads, mlp of the others: small
    128, 256, 12, 4, 1024, 64, 1, 256; large 1024, 1024, 24, 16, 4096, 256, 4, 1024.
    """

    module: ClassVar[str] = "electra:Electra"
    head_activation: ClassVar[str | None] = "gelu"

    embedding: int = 768  # width of the token embeddings of both networks
    width: int = 768  # the discriminator's hidden width
    depth: int = 12  # [layers] of each network
    generator_width: int = 256  # the generator's hidden width
    generator_num_heads: int = 4  # the generator's attention heads per layer
    generator_mlp: int = 1024  # the generator's feed-forward width
