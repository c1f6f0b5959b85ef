"""Beam search: the likeliest rows found by keeping the best few at each step (Sutskever et al. 2014; Wu et al. 2016, section 7).

Scores and stopping are those of `generate` of the library `transformers` with `early_stopping=False`, its default: a row's score is its
log-likelihood over its length to the power of `length_penalty`, and the search ends where the best open row, at its present length,
is no better than the worst of as many ended ones as there are beams.

B batch   W beams   R = B W rows   C = 2 W candidates   T written length   N slots   V vocabulary
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.generation.sampling import behind
from models.layers.cache import gather

NEVER = -1e9  # finite, so that what is never chosen can still be compared and divided


class Search(NamedTuple):
    """The open rows, best first, and the best that have ended."""

    t: jax.Array
    tokens_BWN: jax.Array
    score_BW: jax.Array
    cache: Any
    ended_BWN: jax.Array
    ended_score_BW: jax.Array
    ended_BW: jax.Array  # bool: whether that many have
    improves_B: jax.Array  # bool: whether open rows may still be better than ended ones


@dataclasses.dataclass(frozen=True)
class Beam:
    """`beams` rows at once. length_penalty: above 0 favours longer rows, below 0 shorter ones, 0 the likelier ones."""

    beams: int = 4
    length_penalty: float = 1.0

    def __post_init__(self):
        if self.beams < 1:
            raise ValueError(f"beams is {self.beams}; it must be at least 1")
        if not abs(self.length_penalty) < float("inf"):
            raise ValueError(f"length_penalty is {self.length_penalty}; it must be finite")

    def write(self, prompt, rules, key_B):
        """int32 [B, T]: the best row of each search, up to its end. Nothing is drawn, so `key_B` is not read."""
        B, W = len(prompt.length_B), self.beams
        length_R = jnp.repeat(prompt.length_B, W)

        def unfinished(search):
            return (search.t < rules.length) & search.improves_B.any()

        def step(search):
            last_R = jnp.take_along_axis(
                search.tokens_BWN.reshape(B * W, -1), (length_R + search.t - 1)[:, None], axis=1
            )[:, 0]
            logits_RV, cache = prompt.advance(search.cache, last_R, length_R + search.t - 1)
            return self.grow(search._replace(cache=cache), logits_RV, prompt.length_B, rules)

        tokens_BWN = jnp.repeat(prompt.tokens_BN[:, None], W, axis=1)
        search = Search(
            t=jnp.int32(0),
            tokens_BWN=tokens_BWN,
            score_BW=jnp.full((B, W), NEVER)
            .at[:, 0]
            .set(0.0),  # all are the same yet: one may grow
            cache=gather(prompt.cache, jnp.repeat(jnp.arange(B), W)),
            ended_BWN=tokens_BWN,
            ended_score_BW=jnp.full((B, W), NEVER),
            ended_BW=jnp.zeros((B, W), bool),
            improves_B=jnp.ones(B, bool),
        )
        search = self.grow(search, jnp.repeat(prompt.logits_BV, W, axis=0), prompt.length_B, rules)
        search = jax.lax.while_loop(unfinished, step, search)
        return behind(search.ended_BWN[:, 0], prompt.length_B, rules.length)

    def grow(self, search, logits_RV, length_B, rules):
        """The search one word later."""
        (B, W, N), V, count_B = search.tokens_BWN.shape, logits_RV.shape[-1], length_B + search.t
        score_RV = jax.nn.log_softmax(rules.known(logits_RV))
        score_RV = rules.new(score_RV, search.tokens_BWN.reshape(B * W, N), jnp.repeat(count_B, W))
        score_BWV = score_RV.reshape(B, W, V) + search.score_BW[..., None]
        # Twice as many as beams: however many of them end, as many as there are beams go on.
        score_BC, choice_BC = jax.lax.top_k(score_BWV.reshape(B, W * V), 2 * W)
        parent_BC, id_BC = choice_BC // V, (choice_BC % V).astype(jnp.int32)
        tokens_BCN = jnp.take_along_axis(search.tokens_BWN, parent_BC[..., None], axis=1)
        tokens_BCN = jnp.where(
            jnp.arange(N) == count_B[:, None, None], id_BC[..., None], tokens_BCN
        )
        ends_BC = rules.ends(id_BC) | (search.t + 1 == rules.length)
        power = (search.t + 1).astype(jnp.float32) ** self.length_penalty

        final_BC = ends_BC & (jnp.arange(2 * W) < W) & search.improves_B[:, None]
        final_score_BC = jnp.where(final_BC, score_BC / power, NEVER)
        all_BX = jnp.concatenate([search.ended_score_BW, final_score_BC], axis=1)
        ended_score_BW, best_BW = jax.lax.top_k(all_BX, W)
        ended_BWN = _take(jnp.concatenate([search.ended_BWN, tokens_BCN], axis=1), best_BW)
        ended_BW = _take(jnp.concatenate([search.ended_BW, final_BC], axis=1), best_BW)

        score_BW, open_BW = jax.lax.top_k(jnp.where(ends_BC, NEVER, score_BC), W)
        parent_BW = _take(parent_BC, open_BW)
        worst_B1 = ended_score_BW.min(axis=1, keepdims=True)
        better_B = (score_BW[:, :1] / power > jnp.where(ended_BW, worst_B1, NEVER)).any(axis=1)
        return Search(
            t=search.t + 1,
            tokens_BWN=_take(tokens_BCN, open_BW),
            score_BW=score_BW,
            cache=gather(search.cache, (jnp.arange(B)[:, None] * W + parent_BW).reshape(-1)),
            ended_BWN=ended_BWN,
            ended_score_BW=ended_score_BW,
            ended_BW=ended_BW,
            improves_B=search.improves_B & better_B,
        )


def _take(x_BX, index_BY):
    return jnp.take_along_axis(
        x_BX, index_BY.reshape(*index_BY.shape, *[1] * (x_BX.ndim - 2)), axis=1
    )
