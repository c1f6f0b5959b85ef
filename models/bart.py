"""BART (Lewis et al. 2020): an encoder that reads a damaged text as BERT does, and a decoder that writes it whole as GPT does.

Any damage to the text will do, as the two sides need not match word by word. Both sides have one table of words, and their own positions.

B batch   L target length   M input length   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models.config.bart import BartConfig
from models.layers.attention import Attention
from models.layers.cache import at
from models.layers.dropout import Dropout
from models.layers.linear import Embed
from models.layers.masks import causal_mask, padding_mask
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

NORMAL = nn.initializers.normal(0.02)


class Places(nn.Module):
    """word + position, normalised: what a side's first layer reads."""

    config: BartConfig
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD, train, step=None):
        c, L = self.config, x_BLD.shape[1]
        if L > c.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {c.length} positions of the model (model.length)"
            )
        positions = Embed(
            c.first_position + c.length, c.width, NORMAL, name="position_embedding"
        ).embedding
        x_BLD = LayerNorm(c.epsilon, self.ops, name="norm")(
            x_BLD + at(positions[c.first_position :], L, step)
        )
        return Dropout(c.dropout, ops=self.ops)(x_BLD, deterministic=not train)


class Bart(nn.Module):
    """Return float32 logits [B, L, V] of the labels.

    encoder_token_ids: int32 [B, M]; encoder_attention_mask: bool [B, M], False on padding; labels:
    int32 [B, L], which the decoder reads shifted right by one.
    """

    config: BartConfig
    ops: Ops = PLAIN

    def setup(self):
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
        self.encoder_places, self.decoder_places = Places(c, ops), Places(c, ops)
        self.encoder = stack(layer, c.depth)
        self.decoder = stack(partial(layer, cross=attention), c.decoder_depth)

    def __call__(self, encoder_token_ids, encoder_attention_mask, labels, train=False):
        return self.logits(self.states(encoder_token_ids, encoder_attention_mask, labels, train))

    def states(self, encoder_token_ids, encoder_attention_mask, labels, train=False):
        """What `logits` reads to tell each of the targets: [B, L, D]."""
        read_BL = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=self.config.start)[:, :-1]
        return self.decode(
            self.encode(encoder_token_ids, encoder_attention_mask, train),
            encoder_attention_mask,
            read_BL,
            train,
        )

    def encode(self, encoder_token_ids, encoder_attention_mask, train=False):
        """What the decoder reads: [B, M, D]."""
        return self.encoder(
            self.encoder_places(self.token_embedding(encoder_token_ids), train),
            train,
            mask=padding_mask(encoder_attention_mask),
        )

    def decode(self, memory_BMD, encoder_attention_mask, decoder_token_ids, train=False, step=None):
        """Hidden states [B, L, D], of which position l has read tokens up to l and is to tell the next one.

        step: where the tokens [B, 1] stand behind others that the cache holds, a `models.layers.cache.Step`.
        """
        y = self.decoder_places(self.token_embedding(decoder_token_ids), train, step)
        read = {"memory_BMD": memory_BMD, "memory_mask": padding_mask(encoder_attention_mask)}
        return self.decoder(y, train, **read, mask=causal_mask(step=step))

    def logits(self, y_BLD):
        """Scores of every word, float32 [B, L, V]."""
        return self.token_embedding.attend(y_BLD)
