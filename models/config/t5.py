"""The sizes of T5 and T5 v1.1."""

import dataclasses
from typing import ClassVar

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5Config(ModelConfig):
    """T5-base; `width` is the paper's d_model, `mlp` its d_ff, `head_width` its d_kv.

    v1.1: gated, untied, mlp 2048.
    """

    module: ClassVar[str] = "t5:T5"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("max_distance",)

    vocab: int = 32128
    decoder_depth: int = 12  # [layers] of the decoder
    head_width: int = 64  # of each attention head
    gated: bool = False  # a gated GELU instead of the ReLU, as in v1.1
    tied: bool = True  # the output shares the token embeddings; v1.1: false
    buckets: int = 32  # buckets of relative positions
    max_distance: int = 128  # [tokens] distance beyond which positions share a bucket
    epsilon: float = 1e-6

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of the encoder and of the decoder."""
        return self.depth, self.decoder_depth
