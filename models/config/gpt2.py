"""The sizes of GPT-2."""

import dataclasses
from typing import ClassVar

from models.config.gpt import GptConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpt2Config(GptConfig):
    """The smallest GPT-2.

    Width, depth, heads and mlp of the others: medium 1024, 24, 16, 4096; large 1280, 36, 20, 5120;
    XL 1600, 48, 25, 6400.
    """

    module: ClassVar[str] = "gpt2:Gpt2"

    vocab: int = 50257
    length: int = 1024
