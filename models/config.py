"""The configurations of all models."""

from models.bert import BertConfig
from models.t5 import T5Config

__all__ = ["BertConfig", "T5Config"]
