"""Scores on the whole of a split: sums on the devices, exact totals on the host, one division at the end."""

import functools
import math

import jax
import numpy as np

from pretrain.distributed.device_feed import feed_evaluation
from pretrain.distributed.sharding import gathered, replicated
from pretrain.distributed.xla_options import compiler_options
from pretrain.evaluation.generated_answers import HeldOut
from pretrain.evaluation.task_metrics import check_measured, measured
from pretrain.training.losses import LossOptions
from pretrain.training.step import make_evaluation


def make_score(model, loss, mesh, *, compute):
    """`step.make_evaluation`, jitted for a mesh."""
    options = LossOptions(compute_dtype=compute, gather=gathered(mesh))
    score = make_evaluation(model, loss, options)
    return jax.jit(score, out_shardings=replicated(mesh), compiler_options=compiler_options(mesh))


def make_evaluator(model, loss, mesh, *, compute, metrics=(), objective=None):
    """A function `(params, stream) -> {name: mean}` over every row of the stream's split, with fixed masks and no dropout.

    The result has `loss`, every sum of the objective as a mean, `perplexity` (of the terms that predict words), `targets` (their
    number), `rows` and each of `metrics`, names of finetune.metrics.METRICS that the objective has. begin: called before each batch is scored.
    Where the loss has no row predictions, the model writes an answer for each row, which metrics compare.
    Raises ConfigError for metrics that the objective has not, or whose library is not installed.
    """
    if metrics:
        check_measured(metrics, objective, model.config)
    writes, writer = (
        metrics and loss.row_predictions is None,
        functools.cache(functools.partial(HeldOut, model, mesh)),
    )
    score = make_score(model, loss, mesh, compute=compute)

    def evaluate(params, stream, begin=lambda: None):
        sums, weights, predictions, texts = {}, {}, [], []
        write = writer(stream) if writes else None
        for batch in feed_evaluation(stream, mesh):
            begin()
            *parts, rows = jax.device_get(score(params, batch))
            predictions.append(rows)
            if write:
                begin()
                texts += write(params, batch)
            for total, part in zip((sums, weights), parts):
                for name, value in part.items():
                    total[name] = total.get(name, 0.0) + float(value)  # float64
        means = {name: sums[name] / weights[name] for name in sums}
        words = loss.loss_terms[0]
        perplexity = (
            {"perplexity": math.exp(min(means[words], 700.0))}
            if loss.row_predictions is None
            else {}
        )
        if write:
            found = write.scores(metrics, texts[: stream.rows], stream.split)
        else:
            found = (
                measured(metrics, np.concatenate(predictions), model.config, stream.split)
                if metrics
                else {}
            )
        return {
            "loss": loss.value(means),
            **means,
            **perplexity,
            **found,
            "targets": weights[words],
            "rows": stream.rows,
        }

    return evaluate
