"""The sizes of ModernBERT."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import ModelConfig, TakesHead


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertSizes(TakesHead, ModelConfig):
    """The sizes that the encoder and its decoder twin share."""

    segments: ClassVar[int] = 1  # number of token types
    transforms_states: ClassVar[bool] = True
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "window", "global_every")

    vocab: int = 50368
    length: int = 8192  # [tokens] the longest row; more need no new parameters
    depth: int = 22  # [layers] height of the stack
    mlp: int = 1152  # width of a feed-forward network's hidden layer, which is gated
    global_every: int = 3  # the first of so many layers is global, the others are local
    # [tokens] a query of a local layer attends to itself, half as many before, and half after
    window: int = 128
    global_rotary_base: float = 160_000.0  # of the rotary positions of global layers
    local_rotary_base: float = 10_000.0  # of the rotary positions of local layers
    dropout: float = 0.1  # rate after each attention

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2:
            raise ValueError(
                f"window is {self.window}; it must be even, because a query attends to half as "
                "many tokens on a side"
            )
        for name in ("global_rotary_base", "local_rotary_base"):
            if not (base := getattr(self, name)) > 1:
                raise ValueError(f"{name} is {base}; it must be above 1")

    @property
    def num_groups(self) -> int:
        """The number of groups of local layers and a global one, after the first layer."""
        return (self.depth - 1) // self.global_every

    @property
    def mask_window(self) -> int:
        """The `window` of the mask of a local layer, as `models.layers.masks.Mask` counts it."""
        return self.window


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(ModernBertSizes):
    """ModernBERT-base."""

    module: ClassVar[str] = "modernbert:ModernBert"

    # what a head that scores whole rows reads: the state of the [CLS], or the mean of all states
    pooling: Literal["cls", "mean"] = "cls"
