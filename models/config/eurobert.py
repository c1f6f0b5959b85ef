"""The sizes of EuroBERT."""

import dataclasses
from typing import ClassVar, Literal

from models.config.neobert import NeoBertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EuroBertConfig(NeoBertConfig):
    """EuroBERT-210m."""

    module: ClassVar[str] = "eurobert:EuroBert"
    head_activation: ClassVar[str | None] = "gelu"

    vocab: int = 128256
    length: int = 8192  # [tokens] the longest row; more need no new parameters
    depth: int = 12  # [layers] height of the stack
    num_key_heads: int = 12  # heads of keys and values; they divide `num_heads`
    mlp: int = 3072  # width of a feed-forward network's hidden layer, which is gated
    rotary_base: float = 250_000.0  # of the rotary positions
    # what a head that scores whole rows reads: the first token, the mean of all tokens, or each
    # token, after which the mean of the head's hidden layer is scored
    pooling: Literal["bos", "mean", "late"] = "late"

    @property
    def pools_late(self) -> bool:
        """Whether a head averages its hidden layer over the tokens of a row."""
        return self.pooling == "late"
