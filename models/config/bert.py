"""The sizes of BERT."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """BERT-base; `width` is the paper's hidden size H, `depth` its L, `num_heads` its A.

    Large: width 1024, depth 24, heads 16, mlp 4096.
    """

    module: ClassVar[str] = "bert:BertForPretraining"
    is_default: ClassVar[bool] = True
