"""One id a row and step: the likeliest, or one drawn from the likelier ones (Fan et al. 2018, Holtzman et al. 2019).

B batch   T written length   N slots   V vocabulary   K candidates
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Prompt(NamedTuple):
    """Rows that were read, with what goes on from there.

    tokens_BN: the prompts, with room behind them; length_B: of each prompt; logits_BV: of its next word; advance: a function
    (cache, token_B, position_B) -> (logits_BV, cache) that reads one word a row. cache: a tree for `models.layers.cache.gather`.
    """

    tokens_BN: jax.Array
    length_B: jax.Array
    logits_BV: jax.Array
    cache: Any
    advance: Callable


@dataclasses.dataclass(frozen=True)
class Rules:
    """What may be written, whoever chooses: see `models.generation.generate.generate`."""

    length: int
    end: int | None
    pad: int
    size: int
    no_repeat_ngram: int | None

    def known(self, logits_BV):
        """-inf for the ids from `size` on, which belong to no word."""
        return jnp.where(jnp.arange(logits_BV.shape[-1]) < self.size, logits_BV, -jnp.inf)

    def ends(self, ids):
        """Whether each is the end: bool."""
        return jnp.zeros_like(ids, bool) if self.end is None else ids == self.end

    def new(self, scores_BV, tokens_BN, count_B):
        """-inf for the ids that would repeat an n-gram of a row's first `count` tokens (Paulus et al. 2017, section 2.5)."""
        n, N = self.no_repeat_ngram, tokens_BN.shape[1]
        if n is None or n > N:
            return scores_BV
        row, begins = jnp.arange(len(tokens_BN))[:, None], N - n + 1
        repeated = jnp.arange(n - 1, N) < count_B[:, None]
        for i in range(n - 1):
            last_B1 = jnp.take_along_axis(tokens_BN, (count_B - (n - 1) + i)[:, None], axis=1)
            repeated &= tokens_BN[:, i : i + begins] == last_B1
        return scores_BV.at[row, tokens_BN[:, n - 1 :]].min(jnp.where(repeated, -jnp.inf, jnp.inf))


def behind(tokens_BN, length_B, T):
    """The T tokens behind each row's first ones, [B, T]."""
    return jnp.take_along_axis(tokens_BN, length_B[:, None] + jnp.arange(T), axis=1)


@dataclasses.dataclass(frozen=True)
class Greedy:
    """The likeliest id."""

    def choose(self, scores_BV, key_B):
        return jnp.argmax(scores_BV, axis=-1)

    def write(self, prompt, rules, key_B):
        """int32 [B, T]: rows of chosen ids, up to the end of each."""
        row = jnp.arange(len(prompt.length_B))

        def choose(t, tokens_BN, ended_B, logits_BV):
            scores_BV = rules.new(rules.known(logits_BV), tokens_BN, prompt.length_B + t)
            next_B = self.choose(
                scores_BV, jax.vmap(jax.random.fold_in, (0, None))(key_B, t)
            ).astype(jnp.int32)
            next_B = jnp.where(ended_B, rules.pad, next_B)
            return (
                tokens_BN.at[row, prompt.length_B + t].set(next_B),
                ended_B | rules.ends(next_B),
                next_B,
            )

        def unfinished(state):
            t, _, ended_B, _, _ = state
            return (t < rules.length) & ~ended_B.all()

        def step(state):
            t, tokens_BN, ended_B, last_B, cache = state
            logits_BV, cache = prompt.advance(cache, last_B, prompt.length_B + t - 1)
            return t + 1, *choose(t, tokens_BN, ended_B, logits_BV), cache

        first = choose(jnp.int32(0), prompt.tokens_BN, jnp.zeros(len(row), bool), prompt.logits_BV)
        tokens_BN = jax.lax.while_loop(unfinished, step, (jnp.int32(1), *first, prompt.cache))[1]
        return behind(tokens_BN, prompt.length_B, rules.length)


@dataclasses.dataclass(frozen=True)
class Sample(Greedy):
    """An id drawn by softmax(logits / temperature), of the `top_k` likeliest, of those the fewest that have a mass of `top_p`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}; it must be positive (near 0, the likeliest word is drawn nearly always)"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    def choose(self, scores_BV, key_B):
        draw = jax.vmap(jax.random.categorical)
        scores_BV = scores_BV / self.temperature
        if self.top_k is None and self.top_p == 1:
            return draw(key_B, scores_BV)
        V = scores_BV.shape[-1]
        scores_BK, id_BK = jax.lax.top_k(scores_BV, min(self.top_k or V, V))
        mass_BK = jax.nn.softmax(scores_BK)
        before_BK = jnp.cumsum(mass_BK, axis=-1) - mass_BK
        chosen_B = draw(key_B, jnp.where(before_BK < self.top_p, scores_BK, -jnp.inf))
        return jnp.take_along_axis(id_BK, chosen_B[:, None], axis=1)[:, 0]
