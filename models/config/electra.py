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

    embedding: int = 768  # width of the token embeddings, which both networks share
    width: int = 768  # of the discriminator's hidden states
    depth: int = 12  # [layers] of either network
    generator_width: int = 256  # of the generator's hidden states
    generator_num_heads: int = 4  # attention heads of a layer of the generator
    generator_mlp: int = 1024  # width of the hidden layer of the generator's feed-forward networks
