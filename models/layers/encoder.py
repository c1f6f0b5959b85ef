"""What bidirectional encoders share: embeddings, a stack of layers, a pooler, and predicting masked tokens from its states.

A paper's own file says what differs: the activation, what shares parameters, what is predicted of a row.

B batch   L length   P masked positions   D width   E width of a token's embedding   V vocabulary
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.embeddings import Embeddings
from models.layers.heads import take_positions
from models.layers.linear import Dense
from models.layers.masks import padding_mask
from models.layers.mlp import Mlp, gelu
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer


def make_embeddings(config, width, segments, *, ops, first=0):
    """Return the module that embeds tokens, positions and `segments` kinds of token types in `width` dimensions."""
    c = config
    dropout = partial(Dropout, c.dropout, ops=ops)
    return Embeddings(c.vocab, width, c.length, segments, c.epsilon, dropout, first=first, ops=ops)


def make_stack(config, depth, num_heads, mlp, *, ops, activation=gelu, share=False, name=None):
    """Return a stack of BERT's layers with the rates, epsilon and compilation of a configuration, and these sizes."""
    layer = partial(
        PostNormLayer,
        attention=partial(
            Attention,
            num_heads,
            dropout=partial(Dropout, config.attention_dropout, ops=ops),
            ops=ops,
        ),
        mlp=partial(Mlp, mlp, act=activation, ops=ops),
        norm=partial(LayerNorm, config.epsilon, ops=ops),
        dropout=partial(Dropout, config.dropout, ops=ops),
    )
    return Stack(
        layer,
        depth,
        scan=config.scan,
        share=share,
        remat=config.remat,
        ops=ops,
        name=name,
    )


class PooledEncoder(nn.Module):
    """Embeddings, layers, and the pooler that reads the first position.

    embedding: the width E of a token's embedding where it is not that of the layers: a linear map lies between.
    share: whether all layers are one. first: the position of a row's first token.
    """

    config: Any
    ops: Ops = PLAIN
    activation: Callable = gelu
    embedding: int | None = None
    share: bool = False
    first: int = 0

    def setup(self):
        c = self.config
        self.embeddings = make_embeddings(
            c, self.embedding or c.width, c.segments, first=self.first, ops=self.ops
        )
        if self.embedding is not None:
            self.embedding_projection = Dense(c.width, ops=self.ops)
        self.encoder = make_stack(
            c,
            c.depth,
            c.num_heads,
            c.mlp,
            ops=self.ops,
            activation=self.activation,
            share=self.share,
        )
        self.pooler = Dense(c.width, ops=self.ops)

    def __call__(
        self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None
    ):
        """Return the last hidden states [B, L, D] and the pooled first one [B, D]."""
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.embeddings(token_ids, token_type_ids, train, segment_ids)
        if self.embedding is not None:
            x_BLD = self.embedding_projection(x_BLD)
        x_BLD = self.encoder(x_BLD, train, mask=padding_mask(attention_mask, segment_ids))
        return x_BLD, nn.tanh(self.pooler(x_BLD[:, 0]))


class MaskedLanguageModel(nn.Module):
    """Predicts masked tokens from an encoder's states, and what a paper adds of the row.

    A subclass sets in `setup` its head `mlm_head`, and an encoder under a name of its own, which `body` returns.

    token_ids, token_type_ids: int32 [B, L]; masked_positions: int32 [B, P]; attention_mask: bool [B, L], False on padding.
    segment_ids: int32 [B, L], the text that a token belongs to, from 1, where a row has several side by side, none of which reads another.
    Returns float32 logits of the tokens at `masked_positions` [B, P, V], or everywhere [B, L, V] without them, and what `read_row` returns.
    """

    config: Any
    ops: Ops = PLAIN

    def __call__(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        x_BPD, row = self.states(
            token_ids, attention_mask, token_type_ids, masked_positions, segment_ids, train
        )
        return self.logits(x_BPD), row

    def states(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        """Return what `logits` reads [B, P, D], and what `read_row` returns."""
        x_BLD, pooled_BD = self.encode(
            token_ids, attention_mask, token_type_ids, train, segment_ids
        )
        return take_positions(x_BLD, masked_positions), self.read_row(pooled_BD)

    def read_row(self, pooled_BD):
        """Return what is predicted of the row: nothing here, so its pooled state."""
        return pooled_BD

    def logits(self, x_BPD):
        """Return the scores of every token, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.body.embeddings.token_embedding)

    def encode(self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None):
        """Return the last layer's hidden states [B, L, D] and the pooled first one [B, D]."""
        return self.body(token_ids, attention_mask, token_type_ids, train, segment_ids)
