"""A pretrained encoder and one new layer, which tells of each token how well an answer begins and ends there (Devlin et al. 2018, section 4.2).

A row is `[CLS] question [SEP] context [SEP]`; [CLS] stands for "no answer here" (section 4.3).

B batch   L length   D width
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models import build
from models.finetuned import SpanReaderConfig
from models.layers.attention import attend
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead
from models.layers.stack import unchanged


class SpanReader(nn.Module):
    """tokens_BL, segments_BL: int32; valid_BL: bool, False on padding. Returns float32 [B, L, 2]: logits of the first token and of the last."""

    config: SpanReaderConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        self.encoder = build(c.encoder, constrain=self.constrain, attend=self.attend)
        self.span = ClassHead(2, partial(Dropout, c.dropout))

    def __call__(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        return self.states(tokens_BL, valid_BL, segments_BL, train)

    def states(self, tokens_BL, valid_BL, segments_BL=None, train=False):
        """The logits: nothing is left to tell of words."""
        if segments_BL is not None:  # an encoder of one segment tells the texts of a pair apart by what stands between them
            segments_BL = jnp.minimum(segments_BL, self.config.encoder.segments - 1)
        x_BLD, _ = self.encoder.encode(tokens_BL, valid_BL, segments_BL, train=train)
        return self.span(x_BLD, train)
