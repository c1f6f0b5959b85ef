"""The sizes of ESM C."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig, TakesHead


@dataclasses.dataclass(frozen=True, kw_only=True)
class EsmcConfig(TakesHead, ModelConfig):
    """ESM C of 300 M parameters."""

    module: ClassVar[str] = "esmc:Esmc"
    segments: ClassVar[int] = 1  # number of token types
    head_activation: ClassVar[str | None] = "tanh"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length",)

    vocab: int = 64
    length: int = 2048  # [tokens] the longest row; more need no new parameters
    width: int = 960  # width of the hidden states
    depth: int = 30  # [layers] height of the stack
    num_heads: int = 15  # attention heads of a layer
    mlp: int = 2560  # width of a feed-forward network's hidden layer, which is gated
    dropout: float = 0.0  # rate of the attention's probabilities
    rotary_base: float = 10_000.0  # of the rotary positions

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rotary_base > 1:
            raise ValueError(f"rotary_base is {self.rotary_base}; it must be above 1")
