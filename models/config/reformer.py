"""The sizes of the Reformer."""

import dataclasses
import math
from typing import ClassVar, Literal

from models.config.base import Config, ModelConfig


@dataclasses.dataclass(frozen=True)
class Hashing(Config):
    """Layers of "lsh": attention among tokens whose vectors fall into near buckets (section 2)."""

    zero_fields: ClassVar[tuple[str, ...]] = ("seed",)

    chunk: int = 64  # [tokens] a query attends to its own chunk of sorted tokens and the one before
    rounds: int = 1  # of hashing, each with rotations of its own
    # The number of buckets as its factors, each even; none given: a power of two, near two a chunk.
    buckets: tuple[int, ...] = ()
    dropout: float = 0.0  # rate, of the attention weights
    seed: int = 1  # of the rotations outside of training, which draws new ones in each step


@dataclasses.dataclass(frozen=True)
class LocalChunks(Config):
    """Layers of "local": attention to the own chunk of positions and the one before."""

    chunk: int = 64  # [tokens] of the row; a token attends to its own chunk and the one before
    dropout: float = 0.05  # rate, of the attention weights


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
    # [tokens] for which a feed-forward network is computed at once; none: all of a row
    mlp_chunk: int | None = None
    dropout: float = 0.2
    epsilon: float = 1e-12
    # True: the backward pass computes each layer's inputs from its outputs, so that memory does not
    # grow with the depth (section 3).
    remat: bool = True
    # The attention of each layer; the layers are repetitions of these.
    layers: tuple[Literal["local", "lsh"], ...] = ("local", "local", "lsh", "local")
    hashing: Hashing = Hashing(256, 4, (512,), 0.1)  # of the layers of "lsh"
    local: LocalChunks = LocalChunks(128, 0.2)  # of the layers of "local"
    # Position p's embedding joins row p div C and column p mod C.
    axial_shape: tuple[int, ...] = (128, 512)  # R and C
    axial_widths: tuple[int, ...] = (256, 768)  # of both parts, which add up to the width

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
