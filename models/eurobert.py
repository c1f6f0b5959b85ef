"""EuroBERT (Boizard et al. 2025): Llama's layers in a multilingual encoder.

As NeoBERT, with grouped keys in the larger models, and without any bias (section 2.1).

B batch   L length   D width
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.eurobert import EuroBertConfig
from models.layers.heads import average_tokens
from models.layers.linear import Dense, Embed
from models.layers.norms import RMSNorm
from models.neobert import NeoBert, make_stack

NORMAL = nn.initializers.normal(0.02)  # of `EuroBertConfig.initializer_range` in transformers


class EuroBert(NeoBert):
    """Masked words; `token_type_ids` are not read."""

    config: EuroBertConfig

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.encoder = make_stack(c, NORMAL, self.ops, c.num_key_heads)
        self.norm = RMSNorm(c.epsilon, self.ops)
        self.lm_head = Dense(
            c.vocab, use_bias=False, kernel_init=NORMAL, out_dtype=jnp.float32, ops=self.ops
        )

    def pool(self, x_BLD: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """Return the first token's state, or the mean of all tokens' states, [B, D]."""
        if self.config.pooling == "bos":
            return x_BLD[:, 0]
        return average_tokens(x_BLD, attention_mask)
