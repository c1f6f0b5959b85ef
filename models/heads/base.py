"""What every fine-tuned model is: a pretrained encoder, and beside it a new head, which a class of its own adds.

B batch   L length   D width
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from models import build
from models.config.heads import HeadedConfig
from models.layers.attention import attend
from models.layers.stack import unchanged


class Headed(nn.Module):
    """`states` is what the head tells, and all there is: nothing is left to tell of words."""

    config: HeadedConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        self.encoder = build(self.config.encoder, constrain=self.constrain, attend=self.attend)

    def __call__(self, tokens, valid, segments=None, train=False):
        return self.states(tokens, valid, segments, train)

    def read(self, tokens_BL, valid_BL, segments_BL, train):
        """(last hidden states [B, L, D], the pooled first position [B, D]). An encoder of one segment tells the texts of a pair apart by what
        stands between them."""
        if segments_BL is not None:
            segments_BL = jnp.minimum(segments_BL, self.config.encoder.segments - 1)
        return self.encoder.encode(tokens_BL, valid_BL, segments_BL, train=train)
