"""A lower bound of the log-likelihood of a text, by a model that predicts masked tokens.

Ou et al. (2025), section 3; Nie et al. (2025), section 2.2. If k of n tokens are masked, n / k
times the sum of their log probabilities is on average the log probability of the text, its tokens
taken in a random order, which no order's mixture exceeds. k is spread evenly over 1 to n.

M draws   N tokens of a text
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from data.rows import hashing


class Draw(NamedTuple):
    """Tokens that are masked together.

    Attributes:
      places: their numbers, ascending.
      factor: what their log probabilities count.
    """

    places: list[int]
    factor: float


def draw_masks(number: int, draws: int, seed: int = 0) -> list[Draw]:
    """Return M sets of tokens to mask, whose weighted sums add up to the bound.

    Args:
      number: N.
      draws: M. Each interval of 1 / M of the counts has one draw.
      seed: of the tokens and of the places in the intervals.
    """
    key_M = hashing.derive_keys(seed, np.arange(draws))
    place_M = hashing.draw_uniforms(key_M, 1)[:, 0].astype(np.float64)
    count_M = 1 + ((np.arange(draws) + place_M) / draws * number).astype(np.int64)
    subset_M = hashing.derive_keys(key_M, hashing.ORDER)
    return [
        Draw(
            hashing.choose_subset(subset_M[m : m + 1], number, count)[0].tolist(),
            number / (count * draws),
        )
        for m, count in enumerate(np.minimum(count_M, number).tolist())
    ]


def add_draws(
    number: int, draws: Iterable[Draw], log_probabilities: Iterable[Sequence[float] | np.ndarray]
) -> np.ndarray:
    """Return what each token adds to the bound, float64 [N].

    Args:
      log_probabilities: of the tokens of each draw.
    """
    total_N = np.zeros(number)
    for draw, log_p in zip(draws, log_probabilities, strict=True):
        np.add.at(total_N, draw.places, draw.factor * np.asarray(log_p, np.float64))
    return total_N
