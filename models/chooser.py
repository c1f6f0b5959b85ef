"""A pretrained encoder and one new layer, which scores each choice of a question in a row of its own (Devlin et al. 2018, section 4.4).

A choice is read as the row of a text pair is (models/classifier.py), so that there may be any number of them.

B questions   C choices of each   L length
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models import build
from models.classifier import HEADS
from models.finetuned import ChoiceConfig
from models.layers.attention import attend
from models.layers.dropout import Dropout
from models.layers.stack import unchanged


class Chooser(nn.Module):
    """tokens_BCL, segments_BCL: int32; valid_BCL: bool, False on padding. Returns float32 [B, C], a score for each choice."""

    config: ChoiceConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        self.encoder = build(c.encoder, constrain=self.constrain, attend=self.attend)
        self.classifier = HEADS[type(c.encoder)](1, partial(Dropout, c.dropout))

    def __call__(self, tokens_BCL, valid_BCL, segments_BCL=None, train=False):
        return self.states(tokens_BCL, valid_BCL, segments_BCL, train)

    def states(self, tokens_BCL, valid_BCL, segments_BCL=None, train=False):
        """The scores: nothing is left to tell of words."""
        B, C, L = tokens_BCL.shape
        if segments_BCL is not None:  # an encoder of one segment tells the texts of a pair apart by what stands between them
            segments_BCL = jnp.minimum(segments_BCL, self.config.encoder.segments - 1).reshape(B * C, L)
        _, pooled_ND = self.encoder.encode(tokens_BCL.reshape(B * C, L), valid_BCL.reshape(B * C, L), segments_BCL, train=train)
        return self.classifier(pooled_ND, train).reshape(B, C)
