"""BART (Lewis et al. 2020): an encoder of corrupted text, and a decoder that reconstructs it.

The encoder is bidirectional as BERT's and the decoder autoregressive as GPT's, so that any
corruption can be used: input and output need not align. Both share the token embeddings; each has
its own position embeddings.

B batch   L target length   M input length   D width   P positions   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax

from models.config.bart import BartConfig
from models.layers.attention import Attention
from models.layers.cache import DecodingStep, look_up_positions
from models.layers.dropout import Dropout
from models.layers.encoder_decoder import EncoderDecoder
from models.layers.linear import Embed
from models.layers.masks import make_causal_mask, make_padding_mask
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

NORMAL = nn.initializers.normal(0.02)


class PositionalEmbeddings(nn.Module):
    """norm(token + position): the input of the first layer of the encoder or of the decoder."""

    config: BartConfig
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, train: bool, step: DecodingStep | None = None
    ) -> jax.Array:
        """Return the embeddings [B, L, D].

        Args:
          x_BLD: token embeddings.
          train: whether dropout is applied.
          step: a decoding step, whose tokens [B, 1] follow those in the cache.

        Raises:
          ValueError: L is above the length of the position table.
        """
        c, L = self.config, x_BLD.shape[1]
        if L > c.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {c.length} positions "
                "of the model (model.length)"
            )
        table_PD = Embed(
            c.first_position + c.length, c.width, NORMAL, name="position_embedding"
        ).embedding
        x_BLD = LayerNorm(c.epsilon, self.ops, name="norm")(
            x_BLD + look_up_positions(table_PD[c.first_position :], L, step)
        )
        return Dropout(c.dropout, ops=self.ops)(x_BLD, deterministic=not train)


class Bart(EncoderDecoder):
    """BART's encoder-decoder (section 2.1)."""

    config: BartConfig

    def setup(self) -> None:
        """Make embeddings, encoder and decoder."""
        c, ops = self.config, self.ops
        attention = partial(
            Attention,
            c.num_heads,
            kernel_init=NORMAL,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        )
        layer = partial(
            PostNormLayer,
            attention=attention,
            mlp=partial(Mlp, c.mlp, kernel_init=NORMAL, ops=ops),
            norm=partial(LayerNorm, c.epsilon, ops=ops),
            dropout=partial(Dropout, c.dropout, ops=ops),
        )
        stack = partial(Stack, scan=c.scan, remat=c.remat, ops=ops)

        self.token_embedding = Embed(c.vocab, c.width, NORMAL, ops)
        self.encoder_places, self.decoder_places = (
            PositionalEmbeddings(c, ops),
            PositionalEmbeddings(c, ops),
        )
        self.encoder = stack(layer, c.depth)
        self.decoder = stack(partial(layer, cross=attention), c.decoder_depth)

    def encode(
        self, encoder_token_ids: jax.Array, encoder_attention_mask: jax.Array, train: bool = False
    ) -> jax.Array:
        """Return the encoder's states [B, M, D]."""
        return self.encoder(
            self.encoder_places(self.token_embedding(encoder_token_ids), train),
            train,
            mask=make_padding_mask(encoder_attention_mask),
        )

    def decode(
        self,
        memory_BMD: jax.Array,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D]."""
        y_BLD = self.decoder_places(self.token_embedding(decoder_token_ids), train, step)
        memory = {
            "memory_BMD": memory_BMD,
            "memory_mask": make_padding_mask(encoder_attention_mask),
        }
        return self.decoder(y_BLD, train, **memory, mask=make_causal_mask(step=step))

    def compute_logits(self, y_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.token_embedding.attend(y_BLD)
