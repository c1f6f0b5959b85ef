"""Encoders of words, which are trained with their heads: the embeddings of the words of a row.

The special tokens around texts, and padding, are no words: an encoder does not read them.

B batch   L length   D width
"""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.dropout import Dropout
from models.layers.linear import Embed, ModuleFactory
from models.layers.model import Model
from models.layers.ops import PLAIN, Ops

# `init_words` shifts it to U(-0.25, 0.25), from which the code of Kim (2014) draws the vectors of
# words that its pretrained table lacks.
UNIFORM = nn.initializers.uniform(0.5)


def init_words(key: jax.Array, shape: Sequence[int], dtype: jnp.dtype = jnp.float32) -> jax.Array:
    """Return numbers that are uniform between -0.25 and 0.25."""
    return UNIFORM(key, shape, dtype) - 0.25


def find_words(
    token_ids: jax.Array, attention_mask: jax.Array, special_ids: Sequence[int]
) -> jax.Array:
    """Return where a row has words, bool [B, L]: neither padding nor one of the special ids."""
    is_word_BL = attention_mask.astype(bool)
    for special in special_ids:
        is_word_BL &= token_ids != special
    return is_word_BL


class WordEmbeddings(nn.Module):
    """Embeddings of the words of a row, and 0 elsewhere.

    Two channels to which the same filters are applied and whose results are added (Kim 2014,
    section 2) equal one channel with the sum of both embeddings.

    vocab: rows of the table.
    width: D.
    channels: as in `WordEncoderConfig`.
    """

    vocab: int
    width: int
    channels: str = "non-static"
    dropout: ModuleFactory = partial(Dropout, 0.0)
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the tables."""
        table = partial(Embed, self.vocab, self.width, embedding_init=init_words, ops=self.ops)
        self.token_embedding = table() if self.channels != "static" else None
        self.static_embedding = table() if self.channels != "non-static" else None
        self.drop = self.dropout()

    def __call__(self, token_ids: jax.Array, is_word_BL: jax.Array, train: bool) -> jax.Array:
        """Return the embeddings [B, L, D].

        Args:
          token_ids: int32 [B, L].
          is_word_BL: bool, the result of `find_words`.
          train: whether dropout is applied.
        """
        tables = [table for table in (self.token_embedding, self.static_embedding) if table]
        x_BLD = sum(table(token_ids) for table in tables[1:]) + tables[0](token_ids)
        x_BLD = self.drop(x_BLD, deterministic=not train)
        return jnp.where(is_word_BL[..., None], x_BLD, jnp.zeros((), x_BLD.dtype))


class WordEncoder(Model):
    """The base of encoders of the words of a row.

    A subclass makes its layers in `setup` and implements `encode`.

    config: a `WordEncoderConfig`.
    """

    encodes = True

    def setup(self) -> None:
        """Make the embeddings."""
        c = self.config
        dropout = partial(Dropout, c.dropout, ops=self.ops)
        self.embeddings = WordEmbeddings(c.vocab, c.width, c.channels, dropout, self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the result of `encode`, which has the same arguments."""
        return self.encode(token_ids, attention_mask, token_type_ids, train)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return a state of each position [B, L, ...], and one of each row [B, ...].

        Args:
          token_ids: int32 [B, L].
          attention_mask: bool [B, L], False on padding.
          token_type_ids: not used: two texts of a row are read as one.
          train: whether dropout is applied.
        """
        raise NotImplementedError

    def embed_words(
        self, token_ids: jax.Array, attention_mask: jax.Array, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Return the embeddings [B, L, D], 0 where there is no word, and bool [B, L]: the words."""
        c = self.config
        is_word_BL = find_words(token_ids, attention_mask, (c.cls_id, c.sep_id))
        x_BLD = self.embeddings(token_ids, is_word_BL, train)
        return self.ops.constrain(x_BLD), is_word_BL
