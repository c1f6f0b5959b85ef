"""A pretrained encoder and one new layer, which tells the class of a text or of a pair of texts, or its score (Devlin et al. 2018, section 4.1).

The row is read where every encoder gathers it: at its first position, through BERT's, RoBERTa's and ALBERT's pooler, or through a new hidden
layer where there is none (ELECTRA, DistilBERT), as Hugging Face transformers have it.

B batch   L length   C classes
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models import build
from models.config import AlbertConfig, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig
from models.finetuned import ClassifierConfig
from models.layers.attention import attend
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead, HiddenClassHead
from models.layers.mlp import gelu
from models.layers.stack import unchanged

HEADS = {
    BertConfig: ClassHead,
    RobertaConfig: ClassHead,
    AlbertConfig: ClassHead,
    ElectraConfig: partial(HiddenClassHead, act=gelu),
    DistilBertConfig: partial(HiddenClassHead, act=nn.relu),
}


class Classifier(nn.Module):
    """tokens_BL, segments_BL: int32; valid_BL: bool, False on padding. Returns float32 [B, C], logits of the classes, or one score."""

    config: ClassifierConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        self.encoder = build(c.encoder, constrain=self.constrain, attend=self.attend)
        self.classifier = HEADS[type(c.encoder)](c.outputs, partial(Dropout, c.dropout))

    def __call__(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        return self.states(tokens_BL, valid_BL, segments_BL, train)

    def states(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        """The logits: nothing is left to tell of words."""
        if segments_BL is not None:  # an encoder of one segment tells the texts of a pair apart by what stands between them
            segments_BL = jnp.minimum(segments_BL, self.config.encoder.segments - 1)
        _, pooled_BD = self.encoder.encode(tokens_BL, valid_BL, segments_BL, train=train)
        return self.classifier(pooled_BD, train)
