"""What every fine-tuned model is: a pretrained encoder, and beside it a new head, which a class of its own adds.

B batch   L length   D width
"""

import flax.linen as nn
import jax.numpy as jnp

from models import build
from models.config.heads import HeadedConfig
from models.layers.ops import PLAIN, Ops


class Headed(nn.Module):
    """`states` is what the head tells, and all there is: nothing is left to tell of words."""

    config: HeadedConfig
    ops: Ops = PLAIN

    def setup(self):
        self.encoder = build(self.config.encoder, ops=self.ops)

    def __call__(self, token_ids, attention_mask, token_type_ids=None, train=False):
        return self.states(token_ids, attention_mask, token_type_ids, train)

    def read(self, token_ids, attention_mask, token_type_ids, train):
        """(last hidden states [B, L, D], the pooled first position [B, D]). An encoder of one token type tells the texts of a pair apart by what
        stands between them."""
        if token_type_ids is not None:
            token_type_ids = jnp.minimum(token_type_ids, self.config.encoder.segments - 1)
        return self.encoder.encode(token_ids, attention_mask, token_type_ids, train=train)
