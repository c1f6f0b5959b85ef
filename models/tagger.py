"""A pretrained encoder and one new layer, which tells the tag of each word at its first piece (Devlin et al. 2018, section 5.3).

It reads the last hidden states, through dropout and no other layer, as Hugging Face transformers have it for every encoder here.

B batch   L length   D width   C tags
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn

from models import build
from models.finetuned import TaggerConfig
from models.layers.attention import attend
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead
from models.layers.stack import unchanged


class Tagger(nn.Module):
    """tokens_BL, segments_BL: int32; valid_BL: bool, False on padding. Returns float32 [B, L, C], logits of the tags at each token."""

    config: TaggerConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        self.encoder = build(c.encoder, constrain=self.constrain, attend=self.attend)
        self.classifier = ClassHead(c.outputs, partial(Dropout, c.dropout))

    def __call__(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        return self.states(tokens_BL, valid_BL, segments_BL, train)

    def states(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        """The logits: nothing is left to tell of words."""
        x_BLD, _ = self.encoder.encode(tokens_BL, valid_BL, segments_BL, train=train)
        return self.classifier(x_BLD, train)
