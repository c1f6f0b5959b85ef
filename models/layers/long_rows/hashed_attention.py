"""Attention of linear time: to near positions, and to near vectors by hashing (Kitaev et al. 2020).

B batch   L length   D width   H heads   K head width   R rounds   X columns of a rotation, half the
buckets   M slots of the cache
"""

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.linear import Dense
from models.layers.long_rows.key_chunks import OWN_SCORE, KeyChunks
from models.layers.masks import Mask


def normalize_keys(q_BLHK: jax.Array) -> jax.Array:
    """Return q / |q|, the keys that belong to queries (section 2, "shared-QK")."""
    q = q_BLHK.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.square(q).mean(-1, keepdims=True) + 1e-6)
    return (q * inverse * q.shape[-1] ** -0.5).astype(q_BLHK.dtype)


def choose_buckets(length: int, chunk: int, longest: int) -> tuple[int, ...]:
    """Return the factors of the number of buckets of a row: a power of two, about two a chunk.

    Many buckets are a product of two factors, so that the rotations stay small. The limit is that
    of Hugging Face transformers.

    longest: the longest row of the model.
    """
    exponent = max((2 * (length // chunk)).bit_length() - 1, 1)
    if 2**exponent > 2 * max(math.isqrt(longest // chunk), chunk):
        return 2 ** (exponent // 2), 2 ** (exponent - exponent // 2)
    return (2**exponent,)


def draw_rotations(
    key: jax.Array, num_heads: int, head_width: int, rounds: int, buckets: tuple[int, ...]
) -> jax.Array:
    """Return random matrices, float32 [H, K, R, X], of which X columns make 2 X buckets.

    buckets: the factors of the number of buckets; X is half of their sum.

    Raises:
      ValueError: a factor is odd or below 2.
    """
    if any(factor < 2 or factor % 2 for factor in buckets):
        raise ValueError(
            f"{buckets} buckets: each factor must be even and at least 2, because a vector and its "
            "opposite are in different buckets (model.hashing.buckets)"
        )
    return jax.random.normal(key, (num_heads, head_width, rounds, sum(buckets) // 2))


def hash_vectors(
    x_BLHK: jax.Array, rotations_HKRX: jax.Array, buckets: tuple[int, ...]
) -> jax.Array:
    """Return the bucket of each vector, argmax([x A; -x A]), int32 [B, H, R, L] (section 2).

    A is the rotation of a head and a round.

    buckets: the factors of the number of buckets. With several, each gives a digit of the bucket,
      the first one the lowest (Andoni et al. 2015).
    """
    x = jax.lax.stop_gradient(x_BLHK).astype(jnp.float32)
    rotated_BHRLX = jnp.einsum("blhk,hkrx->bhrlx", x, rotations_HKRX)
    bucket, start, place = jnp.zeros((), jnp.int32), 0, 1
    for factor in buckets:
        part = rotated_BHRLX[..., start : start + factor // 2]
        digit = jnp.argmax(jnp.concatenate([part, -part], axis=-1), axis=-1).astype(jnp.int32)
        bucket, start, place = bucket + place * digit, start + factor // 2, place * factor
    return bucket


class LocalAttention(Attention):
    """Attention to the tokens before, of the own chunk of positions and of the chunk before it.

    chunk: the positions of a chunk.
    multiple: a row is padded to a multiple of so many positions; `chunk` by default.
    """

    chunk: int = 64
    multiple: int | None = None

    def __call__(
        self, x_BLD: jax.Array, *, train: bool, mask: Mask, choices: Any = None
    ) -> tuple[jax.Array, None]:
        """Return the activations [B, L, D] and None, as there is nothing to choose."""
        if x_BLD.shape[1] > self.chunk or mask.step is not None:
            mask = mask.replace(chunks=KeyChunks(self.chunk, self.multiple or self.chunk))
        return super().__call__(x_BLD, train=train, mask=mask), None


class HashedAttention(Attention):
    """Attention to tokens before whose vectors fall into near buckets (section 2).

    The keys are the queries, normalised to length 1 ("shared-QK"). A token attends to itself only
    where it may attend to no other. Training draws new rotations in each step, from the stream
    "dropout"; otherwise they are a function of `seed` alone, the same in all layers.

    The output at a position depends on no later token but through the choice of keys: a token's
    chunk depends on how many tokens of the row are in lower buckets, later ones included. A row of
    one chunk, and a decoding step, attend to all tokens before, which more rounds approximate
    better.

    chunk: the positions of a chunk.
    multiple: a row is padded to a multiple of so many positions; `chunk` by default.
    rounds: R.
    buckets: the factors of the number of buckets; (): as `choose_buckets` chooses.
    seed: of the rotations outside of training.
    longest: the longest row of the model, for `choose_buckets`.
    """

    chunk: int = 64
    multiple: int | None = None
    rounds: int = 1
    buckets: tuple[int, ...] = ()
    seed: int = 0
    longest: int = 4_096

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, *, train: bool, mask: Mask, choices: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """Return the activations [B, L, D] and the buckets, int32 [B, H, R, L] or None.

        choices: the buckets of an earlier call, which are not computed again.
        """
        L, D = x_BLD.shape[1:]
        shape_HK = self.num_heads, self.head_width or D // self.num_heads
        dense = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init, ops=self.ops)
        q_BLHK, v_BLHK = dense(shape_HK, name="query")(x_BLD), dense(shape_HK, name="value")(x_BLD)
        bias = None
        if L > self.chunk and mask.step is None:
            if choices is None:
                choices = self.hash_queries(q_BLHK, train)
            multiple = self.multiple or self.chunk
            mask = mask.replace(chunks=KeyChunks(self.chunk, multiple, choices, avoids_self=True))
        else:
            bias = avoid_self(mask, L)
        drop = self.dropout(deterministic=not train).bind_key()
        out_BLHK = self.ops.attend(
            q_BLHK, normalize_keys(q_BLHK), v_BLHK, mask=mask, bias=bias, scale=1.0, drop=drop
        )
        return dense(D, num_contracting_dims=2, name="out")(out_BLHK), choices

    def hash_queries(self, q_BLHK: jax.Array, train: bool) -> jax.Array:
        """Return the bucket of each query, int32 [B, H, R, L]."""
        L, H, K = q_BLHK.shape[1:]
        multiple = self.multiple or self.chunk
        buckets = self.buckets or choose_buckets(
            -(-L // multiple) * multiple, self.chunk, self.longest
        )
        key = self.make_rng("dropout") if train else jax.random.key(self.seed)
        return hash_vectors(q_BLHK, draw_rotations(key, H, K, self.rounds, buckets), buckets)


def avoid_self(mask: Mask, L: int) -> jax.Array:
    """Return the bias by which queries avoid themselves, [1, 1, L, L]; in a step [B, 1, 1, M]."""
    if mask.step is None:
        return jnp.where(jnp.eye(L, dtype=bool), OWN_SCORE, 0.0)[None, None]
    is_self_BM = mask.step.position_B[:, None] == jnp.arange(mask.step.num_slots)
    return jnp.where(is_self_BM, OWN_SCORE, 0.0)[:, None, None]
