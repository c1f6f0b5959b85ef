"""The sizes of DeBERTa-v3."""

import dataclasses
from typing import ClassVar, Self

from models.config.base import ModelConfig, TakesHead


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebertaV3Config(TakesHead, ModelConfig):
    """DeBERTa-v3-base; `depth` is the discriminator's. Other sizes: configs/deberta_v3_*.py."""

    module: ClassVar[str] = "deberta_v3:DebertaV3"
    segments: ClassVar[int] = 1  # number of token types
    head_activation: ClassVar[str | None] = "gelu"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "max_distance")

    vocab: int = 128_100
    length: int = 512  # [tokens] the longest row; more need no new parameters
    generator_depth: int = 6  # [layers] of the generator, half of `depth` in the paper
    # buckets of the distances of each sign, an even number: nearer ones than half of it have a
    # bucket each, farther ones share buckets by their logarithm
    buckets: int = 256
    max_distance: int = 512  # [tokens] distances from here on share the last bucket
    attention_dropout: float = 0.1  # rate of the attention weights
    epsilon: float = 1e-7
    has_generator: bool = True  # false: a fine-tuned model, which has one table of tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets % 2 or self.max_distance <= self.buckets // 2 + 1:
            raise ValueError(
                f"buckets={self.buckets} and max_distance={self.max_distance}: buckets must be "
                "even, and max_distance above half of them and one more"
            )

    def as_encoder(self) -> Self:
        """Return the configuration of the discriminator alone, whose table is its own."""
        return dataclasses.replace(self, has_generator=False, generator_depth=self.depth)
