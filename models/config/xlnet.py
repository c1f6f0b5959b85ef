"""The sizes of XLNet."""

import dataclasses
from typing import ClassVar, Self

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class XLNetConfig(EncoderConfig):
    """XLNet-base, 116.7 M parameters."""

    module: ClassVar[str] = "xlnet:XLNet"
    head_activation: ClassVar[str | None] = "tanh"
    segments: ClassVar[int] = 3  # token types: the texts of a pair, and the [CLS]
    # Positions are relative.
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length", "memory")

    vocab: int = 32_000
    length: int = 512  # [tokens] the longest text in which masks are filled
    memory: int | None = None  # [tokens] previous states that each layer reads; none: 0
    clamp_len: int | None = None  # [tokens] longer distances count as this one; none: no limit

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("memory", "clamp_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1, or none")

    @property
    def keeps_state(self) -> bool:
        """Whether rows read the memory of those before them."""
        return self.memory is not None

    def as_encoder(self) -> Self:
        """Return the configuration without a memory: labelled rows do not continue each other."""
        return dataclasses.replace(self, memory=None)
