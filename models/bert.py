"""BERT (Devlin et al. 2018): a Transformer encoder that learns language by filling in words from both sides.

It guesses masked words from what stands before and behind them, and whether the second of two texts followed the first.

B batch   L length   P masked positions   D width   V vocabulary   C is next, is not
"""

import jax.numpy as jnp

from models.config.bert import BertConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead
from models.layers.linear import Dense


class BertForPretraining(MaskedLanguageModel):
    """Masked words and next sentence: besides the words' logits, float32 logits [B, 2] of "B follows A" (0) or not (1)."""

    config: BertConfig

    def setup(self):
        self.bert = PooledEncoder(self.config, self.ops)
        self.mlm_head = MaskedLMHead(self.config.epsilon, ops=self.ops)
        self.next_sentence_head = Dense(2, ops=self.ops)

    @property
    def body(self):
        return self.bert

    def read_row(self, pooled_BD):
        return self.next_sentence_head(pooled_BD).astype(jnp.float32)
