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
from pretrain.training.losses import LossOptions, MixedLoss
from pretrain.training.step import make_evaluation


def make_score(model, loss, mesh, *, compute):
    """`step.make_evaluation`, jitted for a mesh."""
    options = LossOptions(compute_dtype=compute, gather=gathered(mesh))
    score = make_evaluation(model, loss, options)
    return jax.jit(score, out_shardings=replicated(mesh), compiler_options=compiler_options(mesh))


def make_evaluator(model, loss, mesh, *, compute, metrics=(), objective=None):
    """A function `(params, stream) -> {name: mean}` over every row of the stream's split, with fixed masks and no dropout.

    The result has `loss`, every sum of the objective as a mean, `perplexity` (of the terms that predict words), `targets` (their
    number), `rows` and each of `metrics`, names of finetune.metrics.METRICS that the objective has; where the split has several
    sources, `loss/SOURCE` of each. begin: called before each batch is scored.
    Of a mixture of objectives it has all of these of each part, as `PART/...`, and the loss that is trained.
    Where the loss has no row predictions, the model writes an answer for each row, which metrics compare.
    Raises ConfigError for metrics that the objective has not, or whose library is not installed.
    """
    if metrics:
        check_measured(metrics, objective, model.config)
    if isinstance(loss, MixedLoss):
        parts = {
            name: make_evaluator(model, part, mesh, compute=compute)
            for name, part in loss.parts.items()
        }
        return functools.partial(evaluate_parts, loss, parts)
    writes, writer = (
        metrics and loss.row_predictions is None,
        functools.cache(functools.partial(HeldOut, model, mesh)),
    )
    score = make_score(model, loss, mesh, compute=compute)

    def evaluate(params, stream, begin=lambda: None):
        by_source, predictions, texts = {}, [], []
        write = writer(stream) if writes else None
        for index, batch in enumerate(feed_evaluation(stream, mesh)):
            begin()
            source, own_rows = stream.evaluation_part(index)
            *parts, rows = jax.device_get(score(params, batch))
            predictions.append(rows)
            if write:
                begin()
                texts += write(params, batch)[:own_rows]
            for total, part in zip(by_source.setdefault(source, ({}, {})), parts):
                for name, value in part.items():
                    total[name] = total.get(name, 0.0) + float(value)  # float64
        if write:
            found = write.scores(metrics, texts, stream.split)
        elif metrics:
            rows = np.concatenate(predictions)
            found = measured(metrics, rows, model.config, stream.split)
        else:
            found = {}
        sums, weights = (add_up(totals) for totals in zip(*by_source.values()))
        return {
            **score_sums(loss, sums, weights),
            **found,
            **score_sources(loss, by_source),
            "targets": weights[loss.loss_terms[0]],
            "rows": stream.rows,
        }

    return evaluate


def add_up(totals):
    """Return {name: sum} of several of these."""
    return {name: sum(total[name] for total in totals) for name in totals[0]}


def score_sums(loss, sums, weights):
    """Return {"loss", each sum as a mean, "perplexity" where words are predicted}."""
    means = {name: sums[name] / weights[name] for name in sums}
    scores = {"loss": loss.value(means), **means}
    if loss.row_predictions is None:
        scores["perplexity"] = math.exp(min(means[loss.loss_terms[0]], 700.0))
    return scores


def score_sources(loss, by_source):
    """Return {`loss/SOURCE`: the mean loss of its rows}, where there are several sources; by_source: {name: (sums, weights)}."""
    if len(by_source) < 2:
        return {}
    return {
        f"loss/{source}": score_sums(loss, sums, weights)["loss"]
        for source, (sums, weights) in by_source.items()
        if all(weights.values())
    }


def evaluate_parts(loss, evaluators, params, stream, begin=lambda: None):
    """Return the scores of a mixture: the loss that is trained, of all and of each source, then the scores of each part."""
    found = {
        name: evaluate(params, stream.streams[name], begin) for name, evaluate in evaluators.items()
    }
    losses = [name for name in next(iter(found.values())) if name.partition("/")[0] == "loss"]
    return {
        name: sum(loss.part_weights[part] * found[part][name] for part in found)
        for name in losses
        if all(name in scores for scores in found.values())
    } | {
        **loss.merge(found),
        "targets": sum(scores["targets"] for scores in found.values()),
        "rows": stream.rows,
    }
