"""The sizes of GPT-3."""

import dataclasses
from typing import ClassVar

from models.config.gpt import GptConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpt3Config(GptConfig):
    """GPT-3 Small; `width` is the paper's d_model, `mlp` four times that.

    configs/gpt3_*.py have the other seven sizes. The paper gives no window: 256 follows
    GPT-Neo, a public replication (Black et al. 2021).
    """

    module: ClassVar[str] = "gpt3:Gpt3"
    layers_per_block: ClassVar[int] = 2  # a dense and a banded one

    vocab: int = 50257
    length: int = 2048
    depth: int = 12  # [layers] even, because dense and banded layers alternate
    window: int = 256  # [tokens] that a query of a banded layer attends to, itself included
    dropout: float = 0.0  # rate after the embeddings and each sublayer
    attention_dropout: float = 0.0

    @property
    def num_pairs(self) -> int:
        """The number of pairs of a dense and a banded layer."""
        return self.depth // 2
