"""The sizes of GPT-3."""

import dataclasses
from typing import ClassVar

from models.config.gpt import GptConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpt3Config(GptConfig):
    """GPT-3 Small; `width` is the paper's d_model, `mlp` four times that. configs/gpt3_*.py have the other seven sizes.

    The paper gives no width of a band: 256 is what GPT-Neo, a public replication, took (Black et al. 2021).
    """

    module: ClassVar[str] = "gpt3:Gpt3"

    vocab: int = 50257
    length: int = 2048
    depth: int = 12  # even: dense and banded layers take turns
    window: int = 256  # positions that a banded layer reads, the reader's own included
    dropout: float = 0.0  # rate; the paper states none
    attention_dropout: float = 0.0

    @property
    def pairs(self):
        """How many times a dense and a banded layer follow each other."""
        return self.depth // 2
