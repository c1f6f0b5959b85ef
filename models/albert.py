"""ALBERT (Lan et al. 2020): BERT with one layer, applied over and over, words in few dimensions, and the order of two texts to tell.

A word's vector has E dimensions, a layer H, and a matrix [E, H] lies between: V * E + E * H parameters instead of V * H. All layers
are the same one, so their number costs time and no parameters.

B batch   L length   P masked positions   D width   E width of a word's vector   V vocabulary   C is in order, is swapped
"""

import jax.numpy as jnp

from models.config.albert import AlbertConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead
from models.layers.linear import Dense
from models.layers.mlp import gelu_tanh


class AlbertForPretraining(MaskedLanguageModel):
    """Masked words and sentence order: besides the words' logits, float32 logits [B, 2] of "A stood before B" (0) or behind it (1)."""

    config: AlbertConfig

    def setup(self):
        c = self.config
        self.albert = PooledEncoder(
            c,
            self.ops,
            activation=gelu_tanh,
            embedding=c.embedding,
            share=True,
        )
        self.mlm_head = MaskedLMHead(c.epsilon, gelu_tanh, self.ops)
        self.sentence_order_head = Dense(2, ops=self.ops)

    @property
    def body(self):
        return self.albert

    def read_row(self, pooled_BD):
        return self.sentence_order_head(pooled_BD).astype(jnp.float32)
