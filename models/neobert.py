"""NeoBERT (Le Breton et al. 2025): Llama's layers in an encoder, deeper and narrower than BERT's.

Rotary positions, a gated feed-forward network with Swish, RMS norms before the sublayers, no
biases, and an output that is not tied to the input (section 3). It predicts masked tokens alone.

B batch   L length   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.neobert import NeoBertConfig
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.encoder import MaskedLanguageModel
from models.layers.linear import Dense, Embed, Initializer
from models.layers.masks import make_padding_mask
from models.layers.mlp import GatedMlp
from models.layers.norms import RMSNorm
from models.layers.ops import Ops
from models.layers.rotary import check_length, find_positions, make_rotation
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer

UNIFORM = partial(jax.random.uniform, minval=-0.02, maxval=0.02)


def make_stack(
    config: NeoBertConfig, kernel_init: Initializer, ops: Ops, num_key_heads: int | None = None
) -> Stack:
    """Return the layers, which are Llama's (Touvron et al. 2023, section 2.2).

    kernel_init: of all linear maps.
    num_key_heads: as in `Attention`.
    """
    c = config
    layer = partial(
        PreNormLayer,
        attention=partial(
            Attention,
            c.num_heads,
            num_key_heads=num_key_heads,
            use_bias=False,
            kernel_init=kernel_init,
            ops=ops,
        ),
        mlp=partial(
            GatedMlp, c.mlp, activation=nn.silu, use_bias=False, kernel_init=kernel_init, ops=ops
        ),
        norm=partial(RMSNorm, c.epsilon, ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
        ops=ops,
    )
    return Stack(layer, c.depth, scan=c.scan, remat=c.remat, ops=ops)


class NeoBert(MaskedLanguageModel):
    """Masked words; `token_type_ids` are not read."""

    config: NeoBertConfig

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, UNIFORM, self.ops)
        self.encoder = make_stack(c, UNIFORM, self.ops)
        self.norm = RMSNorm(c.epsilon, self.ops)
        self.lm_head = Dense(c.vocab, kernel_init=UNIFORM, out_dtype=jnp.float32, ops=self.ops)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D], and the state of each row [B, D].

        Raises:
          ValueError: L is above the model's length.
        """
        c, L = self.config, token_ids.shape[1]
        check_length(L, c.length)
        rotation = make_rotation(
            find_positions(L, segment_ids), c.width // c.num_heads, c.rotary_base
        )
        x_BLD = self.encoder(
            self.token_embedding(token_ids),
            train,
            mask=make_padding_mask(attention_mask, segment_ids),
            rotation=rotation,
        )
        x_BLD = self.norm(x_BLD)
        return x_BLD, self.pool(x_BLD, attention_mask)

    def pool(self, x_BLD: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """Return the state of the [CLS], [B, D]."""
        return x_BLD[:, 0]

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.lm_head(x_BPD)
