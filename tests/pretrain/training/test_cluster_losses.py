"""The cross entropy of an adaptive softmax, without the probabilities of all ids."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.adaptive_softmax import ClusterLogits
from pretrain.training.cross_entropy import token_cross_entropy
from tests.pretrain.training.test_losses import logits_of, make_problem

draw_problem = functools.cache(make_problem)


@pytest.mark.held_by(2)
@pytest.mark.slow
@pytest.mark.parametrize("scores", [110, 10_000])
@pytest.mark.parametrize("sizes", [(50,), (20, 17, 13)], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_clusters_are_scored_like_the_log_probabilities_of_all_ids(scores, sizes, smoothing):
    """In chunks and whole, the best id a target of every third; padding has the target -100."""
    y, table, targets, weights = map(np.array, draw_problem())
    targets[:, 0], weights[:, 0] = -100, 0
    extra = np.random.default_rng(1).standard_normal((len(sizes) - 1, 8), np.float32)
    edges = [0, *itertools.accumulate(sizes)]

    def score_clusters(table, extra, y):
        parts = [logits_of(table[start:end])(y) for start, end in itertools.pairwise(edges)]
        head = jnp.concatenate([parts[0], logits_of(extra)(y)], axis=-1)
        return ClusterLogits(head, tuple(parts[1:]))

    best = jax.jit(lambda *args: score_clusters(*args).compute_log_probs())(table, extra, y)
    targets[:, 1::3] = np.argmax(best, axis=-1)[:, 1::3]

    def compute_value(y, table, extra, is_dense):
        def score(y):
            logits = score_clusters(table, extra, y)
            return logits.compute_log_probs() if is_dense else logits

        return token_cross_entropy(
            score, y, targets, weights, max_scores=scores, smoothing=smoothing
        )

    compute = jax.jit(
        jax.value_and_grad(compute_value, argnums=(0, 1, 2), has_aux=True), static_argnums=3
    )
    found, expected = (compute(y, table, extra, is_dense) for is_dense in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
    np.testing.assert_allclose(found[0][1], weights[:, 1::3].sum(), rtol=1e-6)
