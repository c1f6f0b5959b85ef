"""XLNet (Yang et al. 2019): autoregressive over all orders of a row, by Transformer-XL's attention.

The content stream reads each token, and the tokens up to it in the factorization order. The query
stream has the position of a predicted token, but not the token, and reads what is before it in the
order (section 2.3). Both streams pass through the same layers, concatenated along the row.

B batch   L row length   P predicted positions   X = L + P, or L without predicted positions
M memory length   N = M + L keys   R = N + L - 1 distances   D width   V vocabulary   H heads
K head width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from models.config.xlnet import XLNetConfig
from models.layers.dropout import Dropout
from models.layers.heads import TiedHead, gather_last
from models.layers.linear import Embed
from models.layers.masks import Mask
from models.layers.mlp import Mlp, gelu
from models.layers.norms import LayerNorm
from models.layers.ops import Ops
from models.layers.relative.distance_bias import DistanceBias, TextScores
from models.layers.relative.relative_attention import (
    RelativeAttention,
    RelativePositions,
    embed_distances,
)
from models.layers.relative.segment_recurrence import SegmentRecurrence
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

HIDDEN = np.iinfo(np.int32).max  # the rank of a key that no query sees but the one at its position
NORMAL = nn.initializers.normal(0.02)  # of the authors' code; the paper gives none


class TwoStreamPositions(RelativePositions):
    """The relative positions and texts of both streams.

    num_content: L.
    query_positions_BP: the positions of the query stream; None: there is no query stream.
    text_ids: int32 (of the queries [B, X], of the keys [B, N]), the text of each; None: all are of
      one.
    """

    num_content: int = flax.struct.field(pytree_node=False, default=0)
    query_positions_BP: jax.Array | None = None
    text_ids: tuple[jax.Array, jax.Array] | None = None


class TwoStreamAttention(RelativeAttention):
    """The attention of both streams to the content stream (section 2.3).

    It has a term for whether query and key are of the same text, (q + s_bias) s (section 2.5).
    """

    def join_memory(self, x_BLD: jax.Array, relative: Any) -> jax.Array:
        """Return the memory and the content stream, and write the new memory."""
        return super().join_memory(x_BLD[:, : relative.num_content], relative)

    def add_terms(
        self,
        q_BLHK: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | DistanceBias | None,
        relative: Any,
    ) -> tuple[jax.Array, jax.Array | DistanceBias | None]:
        """Return q + u, and the terms of position and text as the bias."""
        shape_HK = q_BLHK.shape[2:]
        text_bias_HK = self.param("text_bias", self.bias_init, shape_HK)
        text_2HK = self.param("text_embedding", self.bias_init, (2, *shape_HK))
        content_BLHK, bias = super().add_terms(q_BLHK, mask, bias, relative)
        assert isinstance(bias, DistanceBias)
        bias = bias.replace(
            num_keys=bias.r_RHK.shape[0] - relative.num_content + 1,
            position_BP=relative.query_positions_BP,
        )
        if relative.text_ids is None:
            return content_BLHK, bias
        same_BHX, other_BHX = jnp.einsum(
            "bxhk,shk->sbhx",
            q_BLHK + text_bias_HK.astype(q_BLHK.dtype),
            text_2HK.astype(q_BLHK.dtype),
            preferred_element_type=jnp.float32,
        )
        return content_BLHK, bias.replace(texts=TextScores(same_BHX, other_BHX, *relative.text_ids))


def make_layer(config: XLNetConfig, ops: Ops) -> partial[PostNormLayer]:
    """Return the constructor of a layer."""
    c = config
    drop = partial(Dropout, c.dropout, ops=ops)
    return partial(
        PostNormLayer,
        attention=partial(
            TwoStreamAttention,
            c.num_heads,
            use_bias=False,
            kernel_init=NORMAL,
            bias_init=NORMAL,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            memory=c.memory,
            ops=ops,
        ),
        mlp=partial(Mlp, c.mlp, activation=gelu, kernel_init=NORMAL, dropout=drop, ops=ops),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=drop,
    )


class XLNet(SegmentRecurrence):
    """Permutation language modelling; without predicted positions, an encoder in both directions.

    The collection `SEGMENT_MEMORY` has what the next row of each lane reads.
    """

    encodes = True
    config: XLNetConfig

    def setup(self) -> None:
        """Make embeddings, layers, and the output, whose matrix is the embeddings'."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.query_embedding = self.param("query_embedding", NORMAL, (c.width,))
        self.encoder = Stack(
            make_layer(c, self.ops), c.depth, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.drop = Dropout(c.dropout, ops=self.ops)
        self.lm_head = TiedHead(self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        permutation_ranks: jax.Array | None = None,
        is_continued: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return logits, float32 [B, P, V], and the content stream's last state [B, D].

        Arguments: see `compute_states`.
        """
        x_BPD, last_BD = self.compute_states(
            token_ids,
            attention_mask,
            token_type_ids,
            masked_positions,
            permutation_ranks,
            is_continued,
            train,
        )
        return self.compute_logits(x_BPD), last_BD

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        permutation_ranks: jax.Array | None = None,
        is_continued: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the states [B, P, D] for `compute_logits`, and the last token's state [B, D].

        Args:
          token_ids: int32 [B, L].
          attention_mask: bool [B, L], False on padding.
          token_type_ids: int32 [B, L], the text of each token; None: all are of one text.
          masked_positions: int32 [B, P], the predicted positions. Their states come from
            the query stream. None: the content stream's at all positions, [B, L, D].
          permutation_ranks: int32 [B, L], from 1, the place of each token in the factorization
            order; the tokens of rank 0 come first, and see each other. None: that is all tokens but
            the predicted ones, which do not see each other.
          is_continued: bool [B], False where a row does not continue the memory's row, which it
            then does not read; None: all rows continue.
          train: whether dropout is applied.

        Raises:
          ValueError: the memory has another number of rows.
        """
        c, (B, L) = self.config, token_ids.shape
        readable_BM = self.update_readable(jnp.ones((B, L), jnp.int32), is_continued)
        M = 0 if readable_BM is None else readable_BM.shape[1]
        x_BXD = self.token_embedding(token_ids)
        if masked_positions is not None:
            query_BPD = jnp.broadcast_to(
                self.query_embedding.astype(x_BXD.dtype), (*masked_positions.shape, c.width)
            )
            x_BXD = jnp.concatenate([x_BXD, query_BPD], axis=1)
        deterministic = not train
        mask = make_order_mask(attention_mask, permutation_ranks, masked_positions, readable_BM)
        distances_RD = jnp.asarray(
            embed_distances(M + L, c.width, c.clamp_len, num_after=L - 1), x_BXD.dtype
        )
        relative = TwoStreamPositions(
            self.drop(distances_RD, deterministic=deterministic, by_row=False),
            num_content=L,
            query_positions_BP=masked_positions,
            text_ids=find_texts(token_type_ids, masked_positions, M),
        )
        x_BXD = self.drop(x_BXD, deterministic=deterministic)
        x_BXD = self.encoder(x_BXD, train, mask=mask, relative=relative)
        x_BXD = self.drop(x_BXD, deterministic=deterministic)
        last_BD = gather_last(x_BXD[:, :L], attention_mask)
        return (x_BXD if masked_positions is None else x_BXD[:, L:]), last_BD

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.lm_head(x_BPD, self.token_embedding)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D] and each row's last token's state [B, D].

        Raises:
          ValueError: the rows are packed.
        """
        if segment_ids is not None:
            raise ValueError("XLNet reads one text, or a pair of texts, a row; set rows=documents")
        return self.compute_states(token_ids, attention_mask, token_type_ids, train=train)


def make_order_mask(
    attention_mask: jax.Array,
    permutation_ranks: jax.Array | None,
    masked_positions: jax.Array | None,
    readable_BM: jax.Array | None,
) -> Mask:
    """Return which keys each query of both streams attends to, [B, X, N], by ranks.

    All see the memory and the tokens before them in the order. Queries of the content stream see
    their own position, and the tokens of rank 0 see each other. The query stream comes after all
    keys in the array, and has no key of its own.

    Arguments: as in `XLNet.compute_states`; readable_BM: which of the memory a row may read.
    """
    B, L = attention_mask.shape
    ranks_BL = permutation_ranks
    if ranks_BL is None:
        ranks_BL = jnp.zeros((B, L), jnp.int32)
        if masked_positions is not None:
            ranks_BL = ranks_BL.at[jnp.arange(B)[:, None], masked_positions].set(1)
    query_ranks_BX = jnp.maximum(ranks_BL, 1)
    if masked_positions is not None:
        ranks_BP = jnp.take_along_axis(ranks_BL, masked_positions, axis=1)
        query_ranks_BX = jnp.concatenate([query_ranks_BX, ranks_BP], axis=1)
    key_ranks_BN = jnp.where(attention_mask, ranks_BL, HIDDEN)
    if readable_BM is None:
        return Mask(ranks=(query_ranks_BX, key_ranks_BN))
    memory_ranks_BM = jnp.where(readable_BM, -1, HIDDEN).astype(ranks_BL.dtype)
    key_ranks_BN = jnp.concatenate([memory_ranks_BM, key_ranks_BN], axis=1)
    return Mask(ranks=(query_ranks_BX, key_ranks_BN), offset=readable_BM.shape[1])


def find_texts(
    token_type_ids: jax.Array | None, masked_positions: jax.Array | None, M: int
) -> tuple[jax.Array, jax.Array] | None:
    """Return the text of each query, int32 [B, X], and of each key, [B, N]; None if all are of one.

    The memory is of text 0.
    """
    if token_type_ids is None:
        return None
    query_ids_BX = token_type_ids
    if masked_positions is not None:
        ids_BP = jnp.take_along_axis(token_type_ids, masked_positions, axis=1)
        query_ids_BX = jnp.concatenate([token_type_ids, ids_BP], axis=1)
    return query_ids_BX, jnp.pad(token_type_ids, ((0, 0), (M, 0)))
