"""The bound of a text's likelihood is exact for true conditionals, and a model's by its own loop."""

import itertools
import math

import numpy as np
import pytest

from pretrain.inference.scoring.likelihood_bound import Draw, add_draws, draw_masks
from tests import markov


def test_with_true_conditionals_it_is_the_likelihood_exactly():
    """Over all counts k and all sets of k letters."""
    (text,) = markov.draw_texts(np.random.default_rng(4), 1, 6)
    n, draws, scores = len(text), [], []
    for k in range(1, n + 1):
        for places in itertools.combinations(range(n), k):
            draws.append(Draw([*places], n / k / (n * math.comb(n, k))))
            scores.append(markov.compute_conditionals(text, np.isin(np.arange(n), places)))
    total = add_draws(n, draws, scores).sum()
    np.testing.assert_allclose(total, markov.compute_log_likelihood(text), rtol=1e-12)
    # Another model's conditionals give less: here the letters by themselves.
    alone = [np.log(markov.FIRST_3[text[draw.places]]) for draw in draws]
    np.testing.assert_allclose(
        add_draws(n, draws, alone).sum(), np.log(markov.FIRST_3[text]).sum(), rtol=1e-12
    )


def test_draws_spread_the_counts_and_have_the_likelihood_as_their_mean():
    (text,) = markov.draw_texts(np.random.default_rng(5), 1, 8)
    draws = draw_masks(8, 4000)
    counts = np.bincount([len(draw.places) for draw in draws])
    assert counts[1:].tolist() == [500] * 8
    found = np.array(
        [
            4000
            * draw.factor
            * markov.compute_conditionals(text, np.isin(np.arange(8), draw.places)).sum()
            for draw in draws
        ]
    )
    error = found.std() / 4000**0.5
    assert abs(found.mean() - markov.compute_log_likelihood(text)) < 4 * error < 0.5
    assert draw_masks(8, 3) != draw_masks(8, 3, seed=1)
    assert sum(draw.factor for draw in draw_masks(1, 7)) == pytest.approx(1)
