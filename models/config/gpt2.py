"""The sizes of GPT-2."""

import dataclasses
from typing import ClassVar

from models.config.gpt import GptConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpt2Config(GptConfig):
    """The smallest GPT-2.

    Other sizes: configs/gpt2_*.py.
    """

    module: ClassVar[str] = "gpt2:Gpt2"

    vocab: int = 50257
    length: int = 1024
