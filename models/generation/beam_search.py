"""Beam search (Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7).

Scores and stopping follow `generate` in Hugging Face transformers with
`early_stopping=False`, its default. The score of a hypothesis is its log-likelihood divided by its
length to the power of `length_penalty`. The search ends when the best open hypothesis, scored at
its current length, is no better than the worst of W finished ones.

B batch   W beams   R = B W hypotheses   C = 2 W candidates   T generated length   N slots
V vocabulary   X, Y candidates in a selection
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.generation.sampling import DecodingRules, PrefilledPrompt, slice_generated
from models.layers.cache import gather_cache_rows

CLOSED_SCORE = -1e9  # of what is no open hypothesis; finite, so that it can be divided
MAX_PENALTY = 5  # a power of a length by it is a float32


class SearchState(NamedTuple):
    """The state of a search.

    num_generated: int32, the number of generated tokens.
    tokens_BWN: int32, the open hypotheses, best first, each with its prompt.
    score_BW: float32, their log-likelihoods.
    cache: their key-value cache, with R rows.
    ended_BWN: int32, the best finished hypotheses, best first.
    ended_score_BW: float32, their scores; -inf for an empty slot.
    ended_BW: bool, False for an empty slot.
    improves_B: bool, whether an open hypothesis may still beat a finished one.
    """

    num_generated: jax.Array
    tokens_BWN: jax.Array
    score_BW: jax.Array
    cache: Any
    ended_BWN: jax.Array
    ended_score_BW: jax.Array
    ended_BW: jax.Array
    improves_B: jax.Array


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Beam search.

    beams: the number of open hypotheses of a row.
    length_penalty: exponent of the length; above 0 favours longer results, below 0 shorter ones.

    Raises:
      ValueError: `beams` is below 1, or `length_penalty` is not from -5 to 5.
    """

    beams: int = 4
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise ValueError(f"beams is {self.beams}; it must be at least 1")
        if not abs(self.length_penalty) <= MAX_PENALTY:
            raise ValueError(
                f"length_penalty is {self.length_penalty}; it must be from -{MAX_PENALTY} to "
                f"{MAX_PENALTY}"
            )

    def generate_tokens(
        self, prompt: PrefilledPrompt, rules: DecodingRules, key_B: jax.Array
    ) -> jax.Array:
        """Return the best hypothesis of each row, int32 [B, T], padded after its end.

        `key_B` is not used: the search is deterministic.
        """
        B, W = len(prompt.length_B), self.beams
        length_R = jnp.repeat(prompt.length_B, W)

        def is_unfinished(search: SearchState) -> jax.Array:
            return (search.num_generated < rules.length) & search.improves_B.any()

        def take_step(search: SearchState) -> SearchState:
            last_R = jnp.take_along_axis(
                search.tokens_BWN.reshape(B * W, -1),
                (length_R + search.num_generated - 1)[:, None],
                axis=1,
            )[:, 0]
            logits_RV, cache = prompt.advance(
                search.cache, last_R, length_R + search.num_generated - 1
            )
            return self.extend_hypotheses(
                search._replace(cache=cache), logits_RV, prompt.length_B, rules
            )

        tokens_BWN = jnp.repeat(prompt.tokens_BN[:, None], W, axis=1)
        # All W hypotheses of a row are equal at first, so only one of them may be extended.
        first_score_BW = jnp.full((B, W), CLOSED_SCORE).at[:, 0].set(0.0)
        search = SearchState(
            num_generated=jnp.int32(0),
            tokens_BWN=tokens_BWN,
            score_BW=first_score_BW,
            cache=gather_cache_rows(prompt.cache, jnp.repeat(jnp.arange(B), W)),
            ended_BWN=tokens_BWN,
            ended_score_BW=jnp.full((B, W), -jnp.inf),
            ended_BW=jnp.zeros((B, W), bool),
            improves_B=jnp.ones(B, bool),
        )
        search = self.extend_hypotheses(
            search, jnp.repeat(prompt.logits_BV, W, axis=0), prompt.length_B, rules
        )
        search = jax.lax.while_loop(is_unfinished, take_step, search)
        return slice_generated(search.ended_BWN[:, 0], prompt.length_B, rules.length)

    def extend_hypotheses(
        self, search: SearchState, logits_RV: jax.Array, length_B: jax.Array, rules: DecodingRules
    ) -> SearchState:
        """Return the search with one more token in each open hypothesis.

        Args:
          search: the state before.
          logits_RV: the logits of the next token.
          length_B: the lengths of the prompts.
          rules: which tokens are allowed.
        """
        (B, W, N), V, count_B = (
            search.tokens_BWN.shape,
            logits_RV.shape[-1],
            length_B + search.num_generated,
        )
        score_RV = jax.nn.log_softmax(rules.mask_unused_ids(logits_RV))
        score_RV = rules.mask_repeated_ngrams(
            score_RV, search.tokens_BWN.reshape(B * W, N), jnp.repeat(count_B, W)
        )
        score_BWV = score_RV.reshape(B, W, V) + search.score_BW[..., None]
        # Twice as many candidates as beams: at most W of them end, so that W stay open.
        score_BC, index_BC = jax.lax.top_k(score_BWV.reshape(B, W * V), 2 * W)
        parent_BC, id_BC = index_BC // V, (index_BC % V).astype(jnp.int32)
        tokens_BCN = jnp.take_along_axis(search.tokens_BWN, parent_BC[..., None], axis=1)
        tokens_BCN = jnp.where(
            jnp.arange(N) == count_B[:, None, None], id_BC[..., None], tokens_BCN
        )
        ends_BC = rules.is_end(id_BC) | (search.num_generated + 1 == rules.length)
        power = (search.num_generated + 1).astype(jnp.float32) ** self.length_penalty

        final_BC = ends_BC & (jnp.arange(2 * W) < W) & search.improves_B[:, None]
        final_score_BC = jnp.where(final_BC, score_BC / power, -jnp.inf)
        all_scores_BX = jnp.concatenate([search.ended_score_BW, final_score_BC], axis=1)
        ended_score_BW, best_BW = jax.lax.top_k(all_scores_BX, W)
        ended_BWN = _take_candidates(
            jnp.concatenate([search.ended_BWN, tokens_BCN], axis=1), best_BW
        )
        ended_BW = _take_candidates(jnp.concatenate([search.ended_BW, final_BC], axis=1), best_BW)

        score_BW, open_BW = jax.lax.top_k(jnp.where(ends_BC, CLOSED_SCORE, score_BC), W)
        parent_BW = _take_candidates(parent_BC, open_BW)
        worst_B1 = ended_score_BW.min(axis=1, keepdims=True)
        bar_BW = jnp.where(ended_BW, worst_B1, -jnp.inf)
        better_B = (score_BW[:, :1] / power > bar_BW).any(axis=1)
        return SearchState(
            num_generated=search.num_generated + 1,
            tokens_BWN=_take_candidates(tokens_BCN, open_BW),
            score_BW=score_BW,
            cache=gather_cache_rows(
                search.cache, (jnp.arange(B)[:, None] * W + parent_BW).reshape(-1)
            ),
            ended_BWN=ended_BWN,
            ended_score_BW=ended_score_BW,
            ended_BW=ended_BW,
            improves_B=search.improves_B & better_B,
        )


def _take_candidates(x_BX: jax.Array, index_BY: jax.Array) -> jax.Array:
    """Return the entries of x [B, X, ...] at an index of its second axis, [B, Y, ...]."""
    return jnp.take_along_axis(
        x_BX, index_BY.reshape(*index_BY.shape, *[1] * (x_BX.ndim - 2)), axis=1
    )
