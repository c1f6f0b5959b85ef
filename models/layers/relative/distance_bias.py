"""A bias of the distances between queries and keys, whose array of all pairs need not exist.

The term is computed once for each query and distance, [L, R], and shifted, so that no array has an
axis of pairs and one of features (Dai et al. 2019, appendix B; Huang et al. 2018, section 3.4.1).
An attention kernel can do both for a few queries at a time.

B batch   L query length   N keys   R distances: N, or N + L - 1 in both directions   H heads
K head width   S queries in the order of the keys   P other queries, S + P = L
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from models.layers.cache import DecodingStep
from models.layers.masks import PairBias


class TextScores(flax.struct.PyTreeNode):
    """A term for whether query and key are of the same text.

    same_BHL: the term of the keys of the query's own text, float32.
    other_BHL: the term of the other keys.
    query_ids_BL: the text of each query, int32.
    key_ids_BN: the text of each key.
    """

    same_BHL: jax.Array
    other_BHL: jax.Array
    query_ids_BL: jax.Array
    key_ids_BN: jax.Array

    def take_queries(self, start: int, stop: int) -> TextScores:
        """Return the term of the queries from `start` to `stop`."""
        return TextScores(
            self.same_BHL[..., start:stop],
            self.other_BHL[..., start:stop],
            self.query_ids_BL[:, start:stop],
            self.key_ids_BN,
        )

    def make_dense(self) -> jax.Array:
        """Return the term of each pair, float32 [B, H, L, N]."""
        is_other_BLN = self.query_ids_BL[:, :, None] != self.key_ids_BN[:, None, :]
        return jnp.where(is_other_BLN[:, None], self.other_BHL[..., None], self.same_BHL[..., None])


class DistanceBias(PairBias):
    """A bias of the scores, scale * (q_i r_(i - j) + the term of the texts).

    Query l < S is at position N - S + l of the keys.

    q_BLHK: the queries of this term.
    r_RHK: what they are multiplied with for each distance, the largest first: N - 1 to 0, of a
      causal row, or to 1 - S. A causal mask must hide the keys after a query where R is N.
    num_keys: N.
    scale: the factor of the bias.
    position_BP: the positions of the queries from S on, int32, counted from key N - S; None: P = 0.
    texts: the term of the texts; None: all are of one.
    step: a decoding step, at whose positions the queries are.
    """

    q_BLHK: jax.Array
    r_RHK: jax.Array
    num_keys: int = flax.struct.field(pytree_node=False)
    scale: float = flax.struct.field(pytree_node=False)
    position_BP: jax.Array | None = None
    texts: TextScores | None = None
    step: DecodingStep | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array of all pairs, [B, H, L, N]."""
        B, L, H, _ = self.q_BLHK.shape
        return B, H, L, self.num_keys

    @property
    def num_ordered(self) -> int:
        """The number of queries in the order of the keys, S."""
        P = 0 if self.position_BP is None else self.position_BP.shape[1]
        return self.q_BLHK.shape[1] - P

    def split_queries(self) -> tuple[DistanceBias, DistanceBias]:
        """Return the biases of the S queries in the order of the keys, and of the P others."""
        S, L, texts = self.num_ordered, self.q_BLHK.shape[1], self.texts
        assert self.position_BP is not None, "there are others"
        return (
            self.replace(
                q_BLHK=self.q_BLHK[:, :S],
                position_BP=None,
                texts=texts and texts.take_queries(0, S),
            ),
            # Without queries in order, positions count from the key after the last one.
            self.replace(
                q_BLHK=self.q_BLHK[:, S:],
                position_BP=self.position_BP - S,
                texts=texts and texts.take_queries(S, L),
            ),
        )

    def make_dense(self) -> jax.Array:
        """Return the bias of each pair, float32 [B, H, L, N]."""
        scores_BHLR = score_distances(self.q_BLHK, self.r_RHK)
        if self.step is not None:
            return shift_step_scores(scores_BHLR, self.step.position_B) * self.scale
        S, N = self.num_ordered, self.num_keys
        term_BHLN = shift_scores(scores_BHLR[:, :, :S])[..., :N]
        if self.position_BP is not None:
            column_BPN = S - 1 - self.position_BP[..., None] + jnp.arange(N)
            others_BHPN = jnp.take_along_axis(scores_BHLR[:, :, S:], column_BPN[:, None], axis=-1)
            term_BHLN = jnp.concatenate([term_BHLN, others_BHPN], axis=2)
        term_BHLN *= self.scale
        return term_BHLN if self.texts is None else term_BHLN + self.texts.make_dense() * self.scale


def score_distances(q_BLHK: jax.Array, r_RHK: jax.Array) -> jax.Array:
    """Return the score of each query and distance, q r^T, float32 [B, H, L, R]."""
    return jnp.einsum("blhk,rhk->bhlr", q_BLHK, r_RHK, preferred_element_type=jnp.float32)


def shift_scores(scores_BHLR: jax.Array) -> jax.Array:
    """Return scores by distance as scores by key: row l moves L - 1 - l places to the left.

    Column r of the input is the distance N - 1 - r. Column j of the output is key j, whose distance
    from query l, at position N - L + l, is N - L + l - j. There are R columns: with R = N, keys
    after the query get scores of other rows, which a causal mask hides; with R = N + L - 1 the
    first N columns are right for all queries.
    """
    *leading, L, R = scores_BHLR.shape
    padded = jnp.pad(scores_BHLR, [(0, 0)] * (len(leading) + 1) + [(1, 0)])
    return padded.reshape(*leading, R + 1, L)[..., 1:, :].reshape(*leading, L, R)


def shift_step_scores(scores_BH1N: jax.Array, position_B: jax.Array) -> jax.Array:
    """Return the scores by distance of a decoding step as scores by slot of the cache.

    position_B: the position of each row's query.
    """
    N = scores_BH1N.shape[-1]
    column_BN = jnp.clip(N - 1 - position_B[:, None] + jnp.arange(N), 0, N - 1)
    return jnp.take_along_axis(scores_BH1N, column_BN[:, None, None], axis=-1)
