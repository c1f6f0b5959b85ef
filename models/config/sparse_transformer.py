"""The sizes of the Sparse Transformer."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(ModelConfig):
    """The model of enwik8 (Child et al. 2019, section 7.2), of 95 M parameters."""

    module: ClassVar[str] = "sparse_transformer:SparseTransformer"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("length",)

    vocab: int = 256
    length: int = 12_288  # [tokens] the longest row, special tokens included
    width: int = 512
    depth: int = 30  # [layers] even, unless the patterns are merged
    num_heads: int = 8
    mlp: int = 2_048
    dropout: float = 0.4  # rate of each sublayer's output (section 5.4)
    # "fixed" suits text, "strided" rows with a period, such as images (section 4)
    pattern: Literal["strided", "fixed"] = "fixed"
    stride: int = 128  # [tokens] l, near the square root of the length
    summary: int = 32  # [tokens] c: keys of each block that later blocks attend to ("fixed")
    # head h attends to subblock h mod `subblocks`, from the end of a block ("fixed")
    subblocks: int = 4
    # all heads attend to both patterns; false: layers alternate between them (section 5.1)
    merged: bool = True

    @property
    def num_stacked(self) -> int:
        """Number of layers, or of pairs of them where two patterns alternate."""
        return self.depth if self.merged else self.depth // 2
