"""The common parts of bidirectional encoders: embeddings, layers, pooler, masked-LM prediction.

A paper's own file states how it differs: the activation, which parameters are shared, and what is
predicted of a row.

B batch   L length   P masked positions   D width   E embedding width   V vocabulary
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.embeddings import Embeddings
from models.layers.heads import gather_positions
from models.layers.linear import Dense, ModuleFactory
from models.layers.masks import make_padding_mask
from models.layers.mlp import Mlp, gelu
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer


def make_embeddings(
    config: Any, width: int, num_token_types: int, *, ops: Ops, first_position: int = 0
) -> Embeddings:
    """Return the embeddings module of an encoder.

    Args:
      config: the model's `EncoderConfig`.
      width: the width of the embeddings.
      num_token_types: the number of token types.
      ops: the operations.
      first_position: the row of the position table that belongs to the first token of a row.
    """
    c = config
    dropout = partial(Dropout, c.dropout, ops=ops)
    return Embeddings(
        c.vocab,
        width,
        c.length,
        num_token_types,
        c.epsilon,
        dropout,
        first_position=first_position,
        ops=ops,
    )


def make_stack(
    config: Any,
    depth: int,
    num_heads: int,
    mlp: int,
    *,
    ops: Ops,
    activation: Callable[[jax.Array], jax.Array] = gelu,
    attention: ModuleFactory = Attention,
    share: bool = False,
    name: str | None = None,
) -> Stack:
    """Return a stack of BERT's layers.

    Args:
      config: the model's `EncoderConfig`; its dropout, epsilon, scan and remat are used.
      depth: the number of layers.
      num_heads: the number of attention heads of a layer.
      mlp: the width of the feed-forward network's hidden layer.
      ops: the operations.
      activation: of the feed-forward network.
      attention: the constructor of an `Attention`.
      share: whether all layers have the same parameters.
      name: the Flax name of the stack, where it is made in a compact module.
    """
    layer = partial(
        PostNormLayer,
        attention=partial(
            attention,
            num_heads,
            dropout=partial(Dropout, config.attention_dropout, ops=ops),
            ops=ops,
        ),
        mlp=partial(Mlp, mlp, activation=activation, ops=ops),
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
    """Embeddings, layers, and a pooler of the first position (Devlin et al. 2018, section 3).

    config: an `EncoderConfig`.
    activation: of the feed-forward networks.
    attention: the constructor of an `Attention`.
    embedding_width: the width E of the token embeddings where it differs from D; a linear map
      [E, D] follows them.
    share: whether all layers have the same parameters.
    first_position: the row of the position table that belongs to the first token of a row.
    """

    config: Any
    ops: Ops = PLAIN
    activation: Callable[[jax.Array], jax.Array] = gelu
    attention: ModuleFactory = Attention
    embedding_width: int | None = None
    share: bool = False
    first_position: int = 0

    def setup(self) -> None:
        """Make embeddings, layers and pooler."""
        c = self.config
        self.embeddings = make_embeddings(
            c,
            self.embedding_width or c.width,
            c.segments,
            first_position=self.first_position,
            ops=self.ops,
        )
        if self.embedding_width is not None:
            self.embedding_projection = Dense(c.width, ops=self.ops)
        self.encoder = make_stack(
            c,
            c.depth,
            c.num_heads,
            c.mlp,
            ops=self.ops,
            activation=self.activation,
            attention=self.attention,
            share=self.share,
        )
        self.pooler = Dense(c.width, ops=self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D] and the pooled first position [B, D]."""
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.embeddings(token_ids, token_type_ids, train, segment_ids)
        if self.embedding_width is not None:
            x_BLD = self.embedding_projection(x_BLD)
        mask = make_padding_mask(attention_mask, segment_ids)
        x_BLD = self.encoder(x_BLD, train, mask=mask, **self.list_shared_arguments())
        return x_BLD, nn.tanh(self.pooler(x_BLD[:, 0]))

    def list_shared_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that the attentions of all layers share; none by default."""
        return {}


class MaskedLanguageModel(Model):
    """Masked language modelling on an encoder, with a prediction of the row that a paper adds.

    A subclass makes its head `mlm_head` in `setup`, and an encoder under a name of its own, which
    its property `base_model` returns.
    """

    encodes = True

    @property
    def base_model(self) -> PooledEncoder:
        """The encoder; a subclass without a `PooledEncoder` overrides `encode` instead."""
        raise NotImplementedError

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, Any]:
        """Return the logits of the masked tokens, and the prediction of the row.

        Args:
          token_ids: int32 [B, L].
          attention_mask: bool [B, L], False on padding.
          token_type_ids: int32 [B, L]; all 0 by default.
          masked_positions: int32 [B, P]; all positions by default.
          segment_ids: int32 [B, L], from 1, the packed text that a token belongs to. A token
            attends to its own text only. None: one text a row.
          train: whether dropout is applied.

        Returns:
          Logits, float32 [B, P, V], or [B, L, V] without `masked_positions`; and the result of
          `predict_row`.
        """
        x_BPD, row_prediction = self.compute_states(
            token_ids, attention_mask, token_type_ids, masked_positions, segment_ids, train
        )
        return self.compute_logits(x_BPD), row_prediction

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, Any]:
        """Return the hidden states [B, P, D] for `compute_logits`, and the result of
        `predict_row`.
        """
        x_BLD, pooled_BD = self.encode(
            token_ids, attention_mask, token_type_ids, train, segment_ids
        )
        x_BPD = gather_positions(x_BLD, masked_positions, self.ops)
        return x_BPD, self.predict_row(pooled_BD)

    def predict_row(self, pooled_BD: jax.Array) -> jax.Array:
        """Return the prediction of the row; by default the pooled state [B, D] itself."""
        return pooled_BD

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.base_model.embeddings.token_embedding)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D] and the pooled first position [B, D]."""
        return self.base_model(token_ids, attention_mask, token_type_ids, train, segment_ids)
