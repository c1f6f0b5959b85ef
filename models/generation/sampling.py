"""Greedy decoding and sampling (Fan et al. 2018, section 5.4; Holtzman et al. 2019, section 3.1).

B batch   T generated length   N slots   V vocabulary   K candidates
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MIN_TEMPERATURE = 1e-30  # Logits divided by less overflow to infinity.


class PrefilledPrompt(NamedTuple):
    """Prompts after the model's prefill, and the function that continues from there.

    tokens_BN: int32, the prompts, with room for the generated tokens after them.
    length_B: int32, the length of each prompt.
    logits_BV: float32, the logits of the first token to generate.
    cache: the key-value cache, a tree for `models.layers.cache.gather_cache_rows`.
    advance: a function (cache, token_B, position_B) -> (logits_BV, cache), one decoding step.
    """

    tokens_BN: jax.Array
    length_B: jax.Array
    logits_BV: jax.Array
    cache: Any
    advance: Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]


@dataclasses.dataclass(frozen=True)
class DecodingRules:
    """Which tokens may be generated, and when a row ends.

    The fields are arguments of `models.generation.decoding.generate`.
    """

    length: int
    end: int | None
    pad: int
    size: int
    no_repeat_ngram: int | None

    def mask_unused_ids(self, logits_BV: jax.Array) -> jax.Array:
        """Return the logits, with -inf for the ids from `size` on, which are not tokens."""
        return jnp.where(jnp.arange(logits_BV.shape[-1]) < self.size, logits_BV, -jnp.inf)

    def is_end(self, ids: jax.Array) -> jax.Array:
        """Return which of the ids are the end token, bool of the same shape."""
        return jnp.zeros_like(ids, bool) if self.end is None else ids == self.end

    def mask_repeated_ngrams(
        self, scores_BV: jax.Array, tokens_BN: jax.Array, count_B: jax.Array
    ) -> jax.Array:
        """Return the scores, with -inf for tokens that would repeat an n-gram of their row.

        Paulus et al. 2017, section 2.5.

        Args:
          scores_BV: scores of the next token.
          tokens_BN: the rows.
          count_B: the number of tokens in each row so far.
        """
        n, N = self.no_repeat_ngram, tokens_BN.shape[1]
        if n is None or n > N:
            return scores_BV
        row, num_ngrams = jnp.arange(len(tokens_BN))[:, None], N - n + 1
        is_repeated = jnp.arange(n - 1, N) < count_B[:, None]
        for i in range(n - 1):
            last_B1 = jnp.take_along_axis(tokens_BN, (count_B - (n - 1) + i)[:, None], axis=1)
            is_repeated &= tokens_BN[:, i : i + num_ngrams] == last_B1
        return scores_BV.at[row, tokens_BN[:, n - 1 :]].min(
            jnp.where(is_repeated, -jnp.inf, jnp.inf)
        )


def make_rules(
    model: Any,
    length: int,
    end: int | None,
    pad: int,
    size: int | None,
    no_repeat_ngram: int | None,
) -> DecodingRules:
    """Return the rules of a decoding. Arguments: as in `models.generation.decoding.generate`.

    Raises:
      ValueError: an argument is out of range.
    """
    vocab = model.config.vocab
    for name, value in (("length", length), ("no_repeat_ngram", no_repeat_ngram)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if size is not None and not 1 <= size <= vocab:
        raise ValueError(
            f"size is {size}; it must be at least 1 and at most the {vocab} ids of the model"
        )
    return DecodingRules(
        length=length, end=end, pad=pad, size=size or vocab, no_repeat_ngram=no_repeat_ngram
    )


def slice_generated(tokens_BN: jax.Array, length_B: jax.Array, T: int) -> jax.Array:
    """Return the T tokens after the first `length_B` of each row, [B, T]."""
    return jnp.take_along_axis(tokens_BN, length_B[:, None] + jnp.arange(T), axis=1)


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Generate the likeliest token at each step."""

    def select_tokens(self, scores_BV: jax.Array, key_B: jax.Array) -> jax.Array:
        """Return the id of the highest score, int [B]."""
        return jnp.argmax(scores_BV, axis=-1)

    def generate_tokens(
        self, prompt: PrefilledPrompt, rules: DecodingRules, key_B: jax.Array
    ) -> jax.Array:
        """Return the generated ids, int32 [B, T], with padding after the end of each row.

        Args:
          prompt: the prompts.
          rules: which tokens are allowed.
          key_B: the random key of each row.
        """
        row = jnp.arange(len(prompt.length_B))

        def append_token(
            t: jax.Array, tokens_BN: jax.Array, ended_B: jax.Array, logits_BV: jax.Array
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            scores_BV = rules.mask_repeated_ngrams(
                rules.mask_unused_ids(logits_BV), tokens_BN, prompt.length_B + t
            )
            next_B = self.select_tokens(
                scores_BV, jax.vmap(jax.random.fold_in, (0, None))(key_B, t)
            ).astype(jnp.int32)
            next_B = jnp.where(ended_B, rules.pad, next_B)
            return (
                tokens_BN.at[row, prompt.length_B + t].set(next_B),
                ended_B | rules.is_end(next_B),
                next_B,
            )

        def is_unfinished(state: tuple[Any, ...]) -> jax.Array:
            t, _, ended_B, _, _ = state
            return (t < rules.length) & ~ended_B.all()

        def take_step(state: tuple[Any, ...]) -> tuple[Any, ...]:
            t, tokens_BN, ended_B, last_B, cache = state
            logits_BV, cache = prompt.advance(cache, last_B, prompt.length_B + t - 1)
            return t + 1, *append_token(t, tokens_BN, ended_B, logits_BV), cache

        first = append_token(
            jnp.int32(0), prompt.tokens_BN, jnp.zeros(len(row), bool), prompt.logits_BV
        )
        tokens_BN = jax.lax.while_loop(
            is_unfinished, take_step, (jnp.int32(1), *first, prompt.cache)
        )[1]
        return slice_generated(tokens_BN, prompt.length_B, rules.length)


@dataclasses.dataclass(frozen=True)
class Sample(Greedy):
    """Sample a token from softmax(logits / temperature).

    temperature: above 0; 1 is the model's own distribution.
    top_k: sample from this number of the likeliest tokens; None: from all (Fan et al. 2018).
    top_p: of these, sample from the fewest whose probabilities sum to `top_p` (Holtzman et al.
      2019).
    noise: "low", or "high": with twice the random bits, so that rare tokens are as rare as their
      probability says where very many draws are compared (Zheng et al. 2025).

    Raises:
      ValueError: a field is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    noise: str = "low"

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}; it must be positive and finite (near 0, the "
                "likeliest token is nearly always sampled)"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    def select_tokens(self, scores_BV: jax.Array, key_B: jax.Array) -> jax.Array:
        """Return a sampled id of each row, int [B]."""
        sample = jax.vmap(partial(jax.random.categorical, mode=self.noise))
        scores_BV = scores_BV / max(self.temperature, MIN_TEMPERATURE)
        if self.top_k is None and self.top_p == 1:
            return sample(key_B, scores_BV)
        V = scores_BV.shape[-1]
        scores_BK, id_BK = jax.lax.top_k(scores_BV, min(self.top_k or V, V))
        probability_BK = jax.nn.softmax(scores_BK)
        before_BK = jnp.cumsum(probability_BK, axis=-1) - probability_BK
        index_B = sample(key_B, jnp.where(before_BK < self.top_p, scores_BK, -jnp.inf))
        return jnp.take_along_axis(id_BK, index_B[:, None], axis=1)[:, 0]
