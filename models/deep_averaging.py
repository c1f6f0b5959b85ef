"""The deep averaging network (Iyyer et al. 2015), and the averages of words that it extends.

    z_0 = mean of the embeddings of the words      z_i = f(W_i z_(i-1) + b_i)      (section 3)

A head scores z_depth. Depth 0 is the neural bag of words (section 2), the sum of embeddings is a
continuous bag of words (Mikolov et al. 2013, section 3.1), and with embeddings of hashed n-grams it
is fastText's classifier (Joulin et al. 2016, section 2).

B batch   L length   M words and n-grams   N n-grams   D width   K bytes
"""

from functools import partial

import jax
import jax.numpy as jnp

from models.config.deep_averaging import DeepAveragingConfig
from models.layers.dropout import Dropout
from models.layers.linear import FAN_IN, Dense, Embed
from models.layers.mlp import ACTIVATIONS
from models.layers.word_encoder import WordEncoder, init_words

# Constants of the 32-bit hash FNV-1a (Fowler, Noll and Vo; RFC 9923), which fastText uses.
FNV_OFFSET, FNV_PRIME = 2166136261, 16777619


def hash_bytes(bytes_K: jax.Array) -> jax.Array:
    """Return the FNV-1a hash of the bytes on the last axis, uint32 [...], of uint8 [..., K]."""
    hashed = jnp.full(bytes_K.shape[:-1], FNV_OFFSET, jnp.uint32)
    for i in range(bytes_K.shape[-1]):
        hashed = (hashed ^ bytes_K[..., i].astype(jnp.uint32)) * jnp.uint32(FNV_PRIME)
    return hashed


def hash_ngrams(
    token_ids: jax.Array, is_word_BL: jax.Array, ngrams: int, buckets: int
) -> tuple[jax.Array, jax.Array]:
    """Return the buckets of all n-grams of 2 to `ngrams` words, and which of them are of words.

    An n-gram is hashed as the bytes of its ids, the lowest first; fastText hashes its
    characters instead.

    Returns:
      int32 [B, N] and bool [B, N].
    """
    L = token_ids.shape[1]
    shifts_4 = jnp.arange(0, 32, 8, dtype=jnp.uint32)
    bytes_BL4 = (token_ids.astype(jnp.uint32)[..., None] >> shifts_4) & jnp.uint32(255)
    bucket_BN, is_read_BN = [], []
    for n in range(2, ngrams + 1):
        padding = [(0, 0), (0, n - 1)]
        padded_bytes = jnp.pad(bytes_BL4, (*padding, (0, 0)))
        padded_words = jnp.pad(is_word_BL, padding)
        joined = jnp.concatenate([padded_bytes[:, i : i + L] for i in range(n)], axis=-1)
        bucket_BN.append((hash_bytes(joined) % jnp.uint32(buckets)).astype(jnp.int32))
        is_read_BN.append(jnp.stack([padded_words[:, i : i + L] for i in range(n)]).all(axis=0))
    return jnp.concatenate(bucket_BN, axis=1), jnp.concatenate(is_read_BN, axis=1)


class DeepAveraging(WordEncoder):
    """The average of a row's words through hidden layers."""

    config: DeepAveragingConfig

    def setup(self) -> None:
        """Make the embeddings and the hidden layers."""
        super().setup()
        c = self.config
        if c.ngrams > 1:
            self.ngram_embedding = Embed(
                c.buckets, c.width, embedding_init=init_words, ops=self.ops
            )
        self.word_drop = Dropout(c.word_dropout, ops=self.ops)
        linear = partial(Dense, c.hidden, kernel_init=FAN_IN, ops=self.ops)
        self.layer = [linear() for _ in range(c.depth)]

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the embeddings of the words [B, L, D] and the last hidden layer [B, hidden]."""
        c = self.config
        words_BLD, is_read_BM = self.embed_words(token_ids, attention_mask, train)
        x_BMD = words_BLD
        if c.ngrams > 1:
            bucket_BN, is_ngram_BN = hash_ngrams(token_ids, is_read_BM, c.ngrams, c.buckets)
            x_BMD = jnp.concatenate([x_BMD, self.ngram_embedding(bucket_BN)], axis=1)
            is_read_BM = jnp.concatenate([is_read_BM, is_ngram_BN], axis=1)
        z_BD = self.combine(x_BMD, is_read_BM, train).astype(x_BMD.dtype)
        for layer in self.layer:
            z_BD = ACTIVATIONS[c.activation](layer(z_BD))
        return words_BLD, z_BD

    def combine(self, x_BMD: jax.Array, is_read_BM: jax.Array, train: bool) -> jax.Array:
        """Return the mean or the sum of the embeddings that are read, float32 [B, D].

        In training each is left out with a probability (section 3.1). The mean is over the
        rest, and 0 where nothing is left.
        """
        weight_BM = self.word_drop(is_read_BM.astype(jnp.float32), deterministic=not train)
        sum_BD = jnp.einsum("bmd,bm->bd", x_BMD.astype(jnp.float32), weight_BM)
        if self.config.combine == "sum":
            return sum_BD
        total_B1 = weight_BM.sum(axis=1, keepdims=True)
        return jnp.where(total_B1 > 0, sum_BD / jnp.where(total_B1 > 0, total_B1, 1.0), 0.0)
