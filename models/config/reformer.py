"""The sizes of the Reformer."""

import dataclasses
import math
from typing import ClassVar, Literal

from models.config.base import Config, ModelConfig


@dataclasses.dataclass(frozen=True)
class Hashing(Config):
    """Layers of "lsh": attention among tokens whose vectors fall into near buckets (section 2)."""

    zero_fields: ClassVar[tuple[str, ...]] = ("seed",)

    chunk: int = 64  # [tokens] a query attends to its chunk of sorted tokens and the one before
    rounds: int = 1  # of hashing, each with rotations of its own
    # factors of the number of buckets, each even; (): a power of two, near two per chunk
    buckets: tuple[int, ...] = ()
    dropout: float = 0.0  # rate of the attention weights
    seed: int = 1  # of the rotations outside training; training draws new ones each step


@dataclasses.dataclass(frozen=True)
class LocalChunks(Config):
    """Layers of "local": attention to the own chunk of positions and the one before."""

    chunk: int = 64  # [tokens] a token attends to its chunk and the one before
    dropout: float = 0.05  # rate of the attention weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReformerConfig(ModelConfig):
    """The sizes of google/reformer-enwik8 (Kitaev et al. 2020), with rows of 65,536 bytes."""

    module: ClassVar[str] = "reformer:Reformer"

    vocab: int = 258
    width: int = 1_024  # of each of the two streams
    depth: int = 12  # [layers] a multiple of the number of `layers`
    num_heads: int = 8
    head_width: int = 128  # of each attention head
    mlp: int = 4_096
    # [tokens] computed at once by a feed-forward network; none: the row
    mlp_chunk: int | None = None
    dropout: float = 0.2
    epsilon: float = 1e-12
    # recompute each layer's inputs from its outputs: memory does not grow with depth (section 3)
    remat: bool = True
    # attention of each layer, repeated up to `depth`
    layers: tuple[Literal["local", "lsh"], ...] = ("local", "local", "lsh", "local")
    hashing: Hashing = Hashing(256, 4, (512,), 0.1)  # of the "lsh" layers
    local: LocalChunks = LocalChunks(128, 0.2)  # of the "local" layers
    # R and C: position p joins row p // C and column p % C
    axial_shape: tuple[int, ...] = (128, 512)
    axial_widths: tuple[int, ...] = (256, 768)  # of row and column parts; they sum to `width`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mlp_chunk is not None and self.mlp_chunk < 1:
            raise ValueError(f"mlp_chunk is {self.mlp_chunk}; it must be at least 1, or none")

    @property
    def length(self) -> int:
        """The longest row, in tokens."""
        return math.prod(self.axial_shape)

    @property
    def num_groups(self) -> int:
        """How often the layers repeat."""
        return self.depth // max(len(self.layers), 1)
