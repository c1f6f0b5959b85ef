"""ALBERT (Lan et al. 2020): BERT with one layer, applied over and over, words in few dimensions, and the order of two texts to tell.

A word's vector has E dimensions, a layer H, and a matrix [E, H] lies between: V * E + E * H parameters instead of V * H. All layers
are the same one, so their number costs time and no parameters.

B batch   L length   P masked positions   D width   E width of a word's vector   V vocabulary   C is in order, is swapped
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models.config import AlbertConfig
from models.layers.attention import Attention, attend
from models.layers.dropout import Dropout
from models.layers.embeddings import Embeddings
from models.layers.heads import WordHead
from models.layers.linear import Dense
from models.layers.masks import padding_mask
from models.layers.mlp import Mlp, gelu_tanh
from models.layers.norms import LayerNorm
from models.layers.stack import Stack, unchanged
from models.layers.wiring import PostNormLayer


class Albert(nn.Module):
    """The encoder, and the pooler that reads its first position (section 3.1)."""

    config: AlbertConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        layer = partial(
            PostNormLayer,
            attention=partial(
                Attention, c.heads, dropout=partial(Dropout, c.attention_dropout), core=self.attend
            ),
            mlp=partial(Mlp, c.mlp, act=gelu_tanh),
            norm=partial(LayerNorm, c.epsilon),
            dropout=partial(Dropout, c.dropout),
        )
        self.embeddings = Embeddings(
            c.vocab, c.embedding, c.length, c.segments, c.epsilon, partial(Dropout, c.dropout)
        )
        self.widen = Dense(c.width)
        self.encoder = Stack(
            layer, c.depth, scan=c.scan, share=True, remat=c.remat, constrain=self.constrain
        )
        self.pooler = Dense(c.width)

    def __call__(
        self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None
    ):
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLE = self.embeddings(token_ids, token_type_ids, train, segment_ids)
        x_BLD = self.encoder(
            self.widen(x_BLE), train, mask=padding_mask(attention_mask, segment_ids)
        )
        return x_BLD, nn.tanh(self.pooler(x_BLD[:, 0]))


class AlbertForPretraining(nn.Module):
    """Masked words and sentence order.

    token_ids, token_type_ids: int32 [B, L]; masked_positions: int32 [B, P]; attention_mask: bool
    [B, L], False on padding. Returns float32 logits: of the words at `masked_positions` [B, P, V], or everywhere [B, L, V] without them; and [B, 2] of "A stood before B" (0) or behind it (1).
    segment_ids: int32 [B, L], the text that a token belongs to, from 1, where a row has several side
    by side, none of which reads another.
    """

    config: AlbertConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        self.albert = Albert(self.config, self.constrain, self.attend)
        self.word = WordHead(self.config.epsilon, act=gelu_tanh)
        self.order = Dense(2)

    def __call__(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        x_BPD, order_BC = self.states(
            token_ids, attention_mask, token_type_ids, masked_positions, segment_ids, train
        )
        return self.logits(x_BPD), order_BC

    def states(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        """What `logits` reads to tell the words [B, P, D], and the logits [B, 2] of the order."""
        x_BLD, pooled_BD = self.albert(
            token_ids, attention_mask, token_type_ids, train, segment_ids
        )
        if (
            masked_positions is not None
        ):  # before the vocabulary, which is the costliest product of a small model
            x_BLD = jnp.take_along_axis(x_BLD, masked_positions[..., None], axis=1)
        return x_BLD, self.order(pooled_BD).astype(jnp.float32)

    def logits(self, x_BPD):
        """Scores of every word, float32 [B, P, V]."""
        return self.word(x_BPD, self.albert.embeddings.words)

    def encode(self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None):
        """The last layer's hidden states [B, L, D] and the pooled first one [B, D]."""
        return self.albert(token_ids, attention_mask, token_type_ids, train, segment_ids)
