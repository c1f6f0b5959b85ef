"""BERT (Devlin et al. 2018): a bidirectional Transformer encoder, pretrained by two tasks.

It predicts masked tokens from both sides, and whether the second of two texts followed the first.

B batch   D width
"""

import jax
import jax.numpy as jnp

from models.config.bert import BertConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead
from models.layers.linear import Dense


class BertForPretraining(MaskedLanguageModel):
    """Masked language modelling and next-sentence prediction (section 3.1).

    The prediction of the row is float32 logits [B, 2]: the second text follows the first (0), or
    not (1).
    """

    config: BertConfig

    def setup(self) -> None:
        """Make the encoder and the two heads."""
        self.bert = PooledEncoder(self.config, self.ops)
        self.mlm_head = MaskedLMHead(self.config.epsilon, ops=self.ops)
        self.next_sentence_head = Dense(2, ops=self.ops)

    @property
    def base_model(self) -> PooledEncoder:
        """The encoder."""
        return self.bert

    def predict_row(self, pooled_BD: jax.Array) -> jax.Array:
        """Return the next-sentence logits, float32 [B, 2]."""
        return self.next_sentence_head(pooled_BD).astype(jnp.float32)
