"""The sizes of LSTM language models."""

import dataclasses
from typing import ClassVar

from models.config.base import DecoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LstmLmConfig(DecoderConfig):
    """The medium model of Zaremba et al. 2014, 19.8 M parameters."""

    module: ClassVar[str] = "lstm_lm:LstmLanguageModel"
    has_attention: ClassVar[bool] = False
    # Sizes that other code reads of any model; an LSTM has no attention, feed-forward networks or
    # norms.
    num_heads: ClassVar[int] = 1
    mlp: ClassVar[int] = 0
    epsilon: ClassVar[float] = 0.0

    vocab: int = 10_000
    width: int = 650  # of embeddings and cells
    depth: int = 2
    dropout: float = 0.5  # rate of each layer's input and the last output
    tied: bool = False  # the output shares the embeddings (Press and Wolf 2016)
    forget_bias: float = 0.0  # added to the bias of the forget gates

    @property
    def keeps_state(self) -> bool:
        """True: each row begins with the state after the row before it."""
        return True
