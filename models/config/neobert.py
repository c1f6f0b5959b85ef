"""The sizes of NeoBERT."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig, TakesHead


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeoBertConfig(TakesHead, ModelConfig):
    """NeoBERT; `mlp` is two thirds of `intermediate_size` in the authors' configuration."""

    module: ClassVar[str] = "neobert:NeoBert"
    segments: ClassVar[int] = 1  # number of token types
    head_activation: ClassVar[str | None] = "tanh"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length",)

    vocab: int = 30522
    length: int = 4096  # [tokens] the longest row; more need no new parameters
    depth: int = 28  # [layers] height of the stack
    mlp: int = 2048  # width of a feed-forward network's hidden layer, which is gated
    rotary_base: float = 10_000.0  # of the rotary positions
    dropout: float = 0.0  # rate after each sublayer

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rotary_base > 1:
            raise ValueError(f"rotary_base is {self.rotary_base}; it must be above 1")
