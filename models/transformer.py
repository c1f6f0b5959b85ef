"""The Transformer (Vaswani et al. 2017): an encoder-decoder of attention, without recurrence.

Positions are sinusoids added to the token embeddings. Encoder, decoder and output share one table
of embeddings. Several packed pairs may share a row; each attends to itself only.

B batch   L target length   M input length   D width   P positions   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from models.config.transformer import TransformerConfig
from models.layers.attention import Attention
from models.layers.cache import DecodingStep, look_up_positions
from models.layers.dropout import Dropout
from models.layers.embeddings import make_sinusoids
from models.layers.encoder_decoder import PackedEncoderDecoder
from models.layers.linear import Embed
from models.layers.masks import Mask, make_causal_mask, make_padding_mask, make_position_ids
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

# The paper gives no initialisation; we follow its code.
GLOROT = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


class Transformer(PackedEncoderDecoder):
    """The Transformer's encoder-decoder (section 3.1)."""

    config: TransformerConfig

    def setup(self) -> None:
        """Make embeddings, encoder and decoder."""
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, ops=ops)
        norm = partial(LayerNorm, c.epsilon, ops=ops)
        attention = partial(
            Attention,
            c.num_heads,
            kernel_init=GLOROT,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        )
        mlp = partial(Mlp, c.mlp, activation=nn.relu, kernel_init=GLOROT, ops=ops)
        layer = partial(PostNormLayer, attention=attention, mlp=mlp, norm=norm, dropout=dropout)
        stack = partial(Stack, scan=c.scan, remat=c.remat, ops=ops)

        self.token_embedding = Embed(c.vocab, c.width, nn.initializers.normal(c.width**-0.5), ops)
        self.encoder = stack(layer, c.depth)
        self.decoder = stack(partial(layer, cross=attention), c.decoder_depth)
        self.drop = dropout()

    def encode(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        train: bool = False,
        encoder_segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the encoder's states [B, M, D]."""
        x_BMD = self.embed_tokens(encoder_token_ids, encoder_segment_ids, train)
        mask = make_padding_mask(encoder_attention_mask, encoder_segment_ids)
        return self.encoder(x_BMD, train, mask=mask)

    def decode(
        self,
        memory_BMD: jax.Array,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
        segment_ids: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D]."""
        segment_ids_BL = None if segment_ids is None else segment_ids[0]
        y_BLD = self.embed_tokens(decoder_token_ids, segment_ids_BL, train, step)
        memory = {
            "memory_BMD": memory_BMD,
            "memory_mask": Mask(encoder_attention_mask, segment_ids),
        }
        mask = make_causal_mask(segment_ids_BL=segment_ids_BL, step=step)
        return self.decoder(y_BLD, train, **memory, mask=mask)

    def compute_logits(self, y_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V] (section 3.4)."""
        return self.token_embedding.attend(y_BLD)

    def embed_tokens(
        self,
        token_ids: jax.Array,
        segment_ids: jax.Array | None,
        train: bool,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return embedding * sqrt(D) + position, [B, L, D] (sections 3.4 and 3.5).

        Positions count from the start of each pair.
        """
        L, D = token_ids.shape[1], self.config.width
        x_BLD = self.token_embedding(token_ids) * D**0.5
        positions_P = np.arange(L if step is None else step.num_slots)
        table_PD = jnp.asarray(make_sinusoids(positions_P, D), x_BLD.dtype)
        x_BLD += (
            look_up_positions(table_PD, L, step)
            if segment_ids is None
            else table_PD[make_position_ids(segment_ids)]
        )
        return self.drop(x_BLD, deterministic=not train)
