"""Distances in buckets, whose embeddings are projected to queries and keys of their own.

A score then has a term of the query and the bucket's key, and one of the key and the bucket's query
(He et al. 2021, section 3). There are few buckets, so each query and each key is multiplied with
all of them once, and the pairs pick from the results.

B batch   L query length   M key length   N slots of a cache   R buckets   D width   H heads
"""

import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from models.layers.cache import DecodingStep


def group_distances(distance: np.ndarray, near: int, max_distance: int) -> np.ndarray:
    """Return the group of each distance, 0 for 0 and of its sign otherwise.

    Distances up to `near` have groups of their own. Those of longer ones grow logarithmically, so
    that `max_distance` - 1 has group 2 `near` - 1 (He et al. 2021, equation 3, in their code).

    distance: whole numbers, of any sign.
    """
    size = np.abs(distance)
    share = np.log(np.maximum(size, near) / near) / math.log((max_distance - 1) / near)
    # Rounded first: the last distance must not fall behind the last group.
    longer = near + np.ceil(np.round(share * (near - 1), 9)).astype(int)
    return np.where(size <= near, distance, np.sign(distance) * longer)


def find_buckets(distance: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """Return the bucket of each distance of a query from a key, int32 from 0 to 2 * buckets - 2.

    They are `group_distances` with buckets / 2 near ones; `max_distance` has the last bucket.

    Raises:
      ValueError: `max_distance` leaves no room for a second half of the buckets.
    """
    half = buckets // 2
    if not 0 < half < max_distance - 1:
        raise ValueError(
            f"model.buckets={buckets} and model.max_distance={max_distance}: at least 2 buckets, "
            "and a longest distance above half of them plus 1"
        )
    bounded = np.clip(distance, 1 - max_distance, max_distance - 1)
    bucket = group_distances(bounded, half, max_distance)
    return (bucket + buckets - 1).astype(np.int32)


class Distances(flax.struct.PyTreeNode):
    """What all layers share of the distances.

    embedding_RD: an embedding of each bucket.
    bucket: int32, the bucket of each pair, [L, M], or [B, N] of a decoding step's query and each
      slot of the cache.
    """

    embedding_RD: jax.Array
    bucket: jax.Array


def make_distances(
    embedding_RD: jax.Array, L: int, buckets: int, max_distance: int, step: DecodingStep | None
) -> Distances:
    """Return the distances of a row of L tokens, or of a decoding step.

    embedding_RD, buckets, max_distance: as in `Distances` and `find_buckets`, whose ValueError it
      raises.
    """
    if step is None:
        position_L = np.arange(L)
        bucket_LM = find_buckets(position_L[:, None] - position_L, buckets, max_distance)
        return Distances(embedding_RD, jnp.asarray(bucket_LM))
    slot_N = np.arange(step.num_slots)
    bucket_N = jnp.asarray(find_buckets(slot_N, buckets, max_distance))
    distance_BN = jnp.maximum(step.position_B[:, None] - slot_N, 0)  # later slots are masked
    return Distances(embedding_RD, bucket_N[distance_BN])


def add_pair_terms(
    query_term_BHLR: jax.Array, key_term_BHMR: jax.Array, bucket: jax.Array, is_step: bool
) -> jax.Array:
    """Return the sum of a term of each query and of each key for their distance, float32 [B,H,L,M].

    Terms are picked by a product with one-hot rows, which costs about what the scores of content
    cost; a gather of single numbers is slow on accelerators. A decoding step has one query, and
    gathers.

    Args:
      query_term_BHLR: what a query adds for each bucket.
      key_term_BHMR: what a key adds for each bucket.
      bucket: as in `Distances`.
      is_step: whether it is a decoding step.
    """
    if is_step:
        query_BH1N = jnp.take_along_axis(query_term_BHLR, bucket[:, None, None], axis=-1)
        key_BHN1 = jnp.take_along_axis(key_term_BHMR, bucket[:, None, :, None], axis=-1)
        return query_BH1N + key_BHN1.swapaxes(2, 3)
    one_hot_LMR = jax.nn.one_hot(bucket, query_term_BHLR.shape[-1], dtype=query_term_BHLR.dtype)
    return jnp.einsum(
        "bhlr,lmr->bhlm", query_term_BHLR, one_hot_LMR, preferred_element_type=jnp.float32
    ) + jnp.einsum("bhmr,lmr->bhlm", key_term_BHMR, one_hot_LMR, preferred_element_type=jnp.float32)
