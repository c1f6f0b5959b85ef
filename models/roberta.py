"""RoBERTa (Liu et al. 2019): BERT's encoder, trained on masked words alone, and better by what it reads and for how long.

Rows are full of sentences, across documents; masks are drawn anew whenever a row is read; bytes make the words; no next sentence. All of
this is the reader's (`data.objectives.MaskedLm`, rows="sentences"). Here its sign is what is missing, and where positions begin.

B batch   L length   P masked positions   D width   V vocabulary
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from models.config import RobertaConfig
from models.layers.attention import Attention, attend
from models.layers.dropout import Dropout
from models.layers.embeddings import Embeddings
from models.layers.heads import WordHead
from models.layers.linear import Dense
from models.layers.masks import padding_mask
from models.layers.mlp import Mlp, gelu
from models.layers.norms import LayerNorm
from models.layers.stack import Stack, unchanged
from models.layers.wiring import PostNormLayer


class Roberta(nn.Module):
    """The encoder, and a pooler that pretraining leaves as it is: fine-tuning reads a row by it."""

    config: RobertaConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        layer = partial(
            PostNormLayer,
            attention=partial(
                Attention, c.heads, dropout=partial(Dropout, c.attention_dropout), core=self.attend
            ),
            mlp=partial(Mlp, c.mlp, act=gelu),
            norm=partial(LayerNorm, c.epsilon),
            dropout=partial(Dropout, c.dropout),
        )
        # As the authors' code numbers positions, from behind the padding's id: the rows before that are never read.
        self.embeddings = Embeddings(
            c.vocab,
            c.width,
            c.length,
            c.segments,
            c.epsilon,
            partial(Dropout, c.dropout),
            first=c.first_position,
        )
        self.encoder = Stack(layer, c.depth, scan=c.scan, remat=c.remat, constrain=self.constrain)
        self.pooler = Dense(c.width)

    def __call__(
        self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None
    ):
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.embeddings(token_ids, token_type_ids, train, segment_ids)
        x_BLD = self.encoder(x_BLD, train, mask=padding_mask(attention_mask, segment_ids))
        return x_BLD, nn.tanh(self.pooler(x_BLD[:, 0]))


class RobertaForMaskedLM(nn.Module):
    """Masked words, and nothing else.

    token_ids: int32 [B, L]; masked_positions: int32 [B, P]; attention_mask: bool [B, L], False on
    padding; token_type_ids: None, or int32 [B, L] where a model has several types. Returns float32
    logits of the words at `masked_positions` [B, P, V], or everywhere [B, L, V] without them; and the pooled row [B, D].
    segment_ids: int32 [B, L], the text that a token belongs to, from 1, where a row has several side
    by side, none of which reads another.
    """

    config: RobertaConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        self.roberta = Roberta(self.config, self.constrain, self.attend)
        self.word = WordHead(self.config.epsilon)

    def __call__(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        x_BPD, pooled_BD = self.states(
            token_ids, attention_mask, token_type_ids, masked_positions, segment_ids, train
        )
        return self.logits(x_BPD), pooled_BD

    def states(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        """What `logits` reads to tell the words [B, P, D], and the pooled row [B, D]."""
        x_BLD, pooled_BD = self.roberta(
            token_ids, attention_mask, token_type_ids, train, segment_ids
        )
        if (
            masked_positions is not None
        ):  # before the vocabulary, which is the costliest product of a small model
            x_BLD = jnp.take_along_axis(x_BLD, masked_positions[..., None], axis=1)
        return x_BLD, pooled_BD

    def logits(self, x_BPD):
        """Scores of every word, float32 [B, P, V]."""
        return self.word(x_BPD, self.roberta.embeddings.words)

    def encode(self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None):
        """The last layer's hidden states [B, L, D] and the pooled first one [B, D]."""
        return self.roberta(token_ids, attention_mask, token_type_ids, train, segment_ids)
