"""The sizes of BERT."""

import dataclasses
from typing import ClassVar

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """BERT-base; `width` is the paper's hidden size H, `depth` its L, `num_heads` its A.

    Other sizes: configs/bert_large.py.
    """

    module: ClassVar[str] = "bert:BertForPretraining"
    is_default: ClassVar[bool] = True
