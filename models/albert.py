"""ALBERT (Lan et al. 2020): BERT with shared layers, factorised embeddings and sentence order.

Token embeddings have E dimensions, layers have H, with a matrix [E, H] between: V * E + E * H
parameters instead of V * H (section 3.1). All layers share their parameters. The next-sentence
prediction is replaced by sentence-order prediction.

B batch   D width
"""

import jax
import jax.numpy as jnp

from models.config.albert import AlbertConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead
from models.layers.linear import Dense
from models.layers.mlp import gelu_tanh


class AlbertForPretraining(MaskedLanguageModel):
    """Masked language modelling and sentence-order prediction (section 3.1).

    The prediction of the row is float32 logits [B, 2]: the two texts are in order (0), or swapped
    (1).
    """

    config: AlbertConfig

    def setup(self) -> None:
        """Make the encoder and the two heads."""
        c = self.config
        self.albert = PooledEncoder(
            c,
            self.ops,
            activation=gelu_tanh,
            embedding_width=c.embedding,
            share=True,
        )
        self.mlm_head = MaskedLMHead(c.epsilon, gelu_tanh, self.ops)
        self.sentence_order_head = Dense(2, ops=self.ops)

    @property
    def base_model(self) -> PooledEncoder:
        """The encoder."""
        return self.albert

    def predict_row(self, pooled_BD: jax.Array) -> jax.Array:
        """Return the sentence-order logits, float32 [B, 2]."""
        return self.sentence_order_head(pooled_BD).astype(jnp.float32)
