"""Scores on the whole of a split: sums on the devices, exact totals on the host, one division at the end."""

import math

import jax

from pretrain.compiler import compiler_options
from pretrain.feed import feed_evaluation
from pretrain.sharding import gathered, replicated
from pretrain.step import make_evaluation


def make_score(model, loss, mesh, *, compute):
    """`(params, batch) -> ({name: sum}, {name: weight})`, jitted for a mesh."""
    score = make_evaluation(model, loss, compute=compute, gather=gathered(mesh))
    return jax.jit(score, out_shardings=replicated(mesh), compiler_options=compiler_options(mesh))


def make_evaluator(model, loss, mesh, *, compute):
    """A function `(params, stream) -> {name: mean}` over every row of the stream's split, with fixed masks and no dropout.

    The result has `loss`, every sum of the objective as a mean, `perplexity` (of the terms that predict words), `targets` (their
    number) and `rows`. begin: called before each batch is scored.
    """
    score = make_score(model, loss, mesh, compute=compute)

    def evaluate(params, stream, begin=lambda: None):
        sums, weights = {}, {}
        for batch in feed_evaluation(stream, mesh):
            begin()
            for total, part in zip((sums, weights), jax.device_get(score(params, batch))):
                for name, value in part.items():
                    total[name] = total.get(name, 0.0) + float(value)  # float64
        means = {name: sums[name] / weights[name] for name in sums}
        words = loss.terms[0]
        return {
            "loss": loss.value(means),
            **means,
            "perplexity": math.exp(min(means[words], 700.0)),
            "targets": weights[words],
            "rows": stream.rows,
        }

    return evaluate
