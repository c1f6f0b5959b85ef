"""The sizes of ESM-2."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import ModelConfig, TakesHead


@dataclasses.dataclass(frozen=True, kw_only=True)
class Esm2Config(TakesHead, ModelConfig):
    """ESM-2 of 8 M parameters."""

    module: ClassVar[str] = "esm2:Esm2"
    segments: ClassVar[int] = 1  # number of token types
    head_activation: ClassVar[str | None] = "tanh"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "mask_id")
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {"mask_id": ("mask", 0)}

    vocab: int = 33
    length: int = 1026  # [tokens] the longest row; more need no new parameters
    width: int = 320  # width of the hidden states
    depth: int = 6  # [layers] height of the stack
    num_heads: int = 20  # attention heads of a layer
    mlp: int = 1280  # width of a feed-forward network's hidden layer
    dropout: float = 0.0  # rate after each sublayer
    attention_dropout: float = 0.0  # rate of the attention's probabilities
    rotary_base: float = 10_000.0  # of the rotary positions
    rotary_rates: Literal["float32", "float16", "bfloat16"] = "float32"  # format of their rates
    mask_id: int = 32  # id of the mask
    drops_masks: bool = True  # embed masks as 0, and scale the other embeddings accordingly

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rotary_base > 1:
            raise ValueError(f"rotary_base is {self.rotary_base}; it must be above 1")
