"""The sizes of Transformer-XL."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Clusters of ids, which are sorted by frequency: adaptive softmax and adaptive embeddings.

    Grave et al. 2016; Baevski and Auli 2018, section 3.
    """

    # first id of each cluster but the first, ascending
    cutoffs: tuple[int, ...] = (20_000, 40_000, 200_000)
    divisor: int = 1  # each cluster's embeddings are narrower by this factor than the one before

    def __post_init__(self) -> None:
        if not self.cutoffs or list(self.cutoffs) != sorted(set(self.cutoffs)):
            raise ValueError(
                f"cutoffs are {self.cutoffs}; there must be at least one, and they must ascend. "
                "For one softmax over all ids set model.clusters=none"
            )
        if min(self.cutoffs) < 1 or self.divisor < 1:
            raise ValueError(
                f"cutoffs are {self.cutoffs} and divisor is {self.divisor}; all must be at least 1"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(ModelConfig):
    """The standard model of WikiText-103, 151.1 M parameters."""

    module: ClassVar[str] = "transformer_xl:TransformerXL"
    # Each cluster may have a table of its own.
    not_in_tensors: ClassVar[tuple[str, ...]] = ("memory", "vocab")

    vocab: int = 267_735
    width: int = 410
    depth: int = 16
    num_heads: int = 10
    head_width: int = 41  # of each attention head
    mlp: int = 2_100
    attention_dropout: float = 0.0  # rate of the attention weights
    memory: int = 150  # [tokens] previous states that each layer reads
    clamp_len: int | None = None  # [tokens] longer distances count as this one; none: no limit
    same_length: bool = False  # each query attends to the last `memory` positions, itself included
    untie_r: bool = True  # each layer has its own biases u and v
    clusters: Clusters | None = Clusters()  # of the softmax; none: full softmax

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clamp_len is not None and self.clamp_len < 1:
            raise ValueError(f"clamp_len is {self.clamp_len}; it must be at least 1, or none")

    @property
    def least_vocab(self) -> int:
        """One id more than the last cutoff: each cluster has an id."""
        return max(self.clusters.cutoffs) + 1 if self.clusters else 1

    @property
    def keeps_state(self) -> bool:
        """True: each segment reads the memory of those before it."""
        return True
