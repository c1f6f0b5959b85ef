"""The sizes of T5Gemma."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5GemmaConfig(ModelConfig):
    """T5Gemma-base. Local and global layers alternate, and the first of a stack is local.

    attention_cap, logit_cap: bounds of the attention scores and of the logits, by a tanh.
    """

    module: ClassVar[str] = "t5gemma:T5Gemma"
    zero_fields: ClassVar[tuple[str, ...]] = ("start",)
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {"start": ("start", 0)}
    attention_cap: ClassVar[float] = 50.0
    logit_cap: ClassVar[float] = 30.0
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "window")

    vocab: int = 256_000
    length: int = 8192  # [tokens] the longest row; more need no new parameters
    decoder_depth: int = 12  # [layers] of the decoder
    num_key_heads: int = 12  # heads of keys and values, which divide the heads of queries
    head_width: int = 64  # of each attention head
    mlp: int = 2048  # width of a feed-forward network's hidden layer, which is gated
    # [tokens] a local layer of the encoder attends to as many on each side, of the decoder to its
    # own and the tokens before it, as many in all
    window: int = 4096
    rotary_base: float = 10_000.0  # of the rotary positions
    start: int = 2  # id that the decoder reads first: <bos>, or </s> where there is none
    dropout: float = 0.0
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rotary_base > 1:
            raise ValueError(f"rotary_base is {self.rotary_base}; it must be above 1")
        if self.head_width % 2:
            raise ValueError(
                f"head_width is {self.head_width}; rotary positions turn pairs of dimensions, so "
                "it must be even"
            )

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of the encoder and of the decoder."""
        return self.depth, self.decoder_depth

    @property
    def num_pairs(self) -> int:
        """The pairs of a local and a global layer in the encoder."""
        return self.depth // 2

    @property
    def decoder_num_pairs(self) -> int:
        """The pairs of a local and a global layer in the decoder."""
        return self.decoder_depth // 2
