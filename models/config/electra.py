"""The sizes of ELECTRA."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA-base; the generator has a third or a quarter of the discriminator's width (table 6).

    Other sizes: configs/electra_*.py.
    """

    module: ClassVar[str] = "electra:Electra"
    head_activation: ClassVar[str | None] = "gelu"

    embedding: int = 768  # width of the token embeddings of both networks
    width: int = 768  # the discriminator's hidden width
    depth: int = 12  # [layers] of each network
    generator_width: int = 256  # the generator's hidden width
    generator_num_heads: int = 4  # the generator's attention heads per layer
    generator_mlp: int = 1024  # the generator's feed-forward width
