"""The sizes of ELECTRA."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA-base. Small: embedding 128, 256, 12, 4, mlp 1024, generator 64, 1, 256; large: 1024, 1024, 24, 16, 4096, 256, 4, 1024.

    The generator is as deep as the discriminator, and narrower: a third or a quarter of its width, heads and mlp (table 6).
    """

    module: ClassVar[str] = "electra:Electra"
    head_activation: ClassVar[str | None] = "gelu"

    embedding: int = 768  # the width of a token's vector, which both networks read
    width: int = 768  # of the discriminator
    depth: int = 12  # of both
    generator_width: int = 256  # of the generator's hidden states
    generator_num_heads: int = 4  # of a layer of the generator
    generator_mlp: int = 1024  # of the generator
