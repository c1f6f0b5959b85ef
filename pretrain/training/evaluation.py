"""Scores over a whole split: sums on the devices, exact totals and one division on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from data.members import call_later
from data.mixed import Mixed
from data.objectives.objective import Objective
from data.pipeline import Stream
from pretrain.mesh.device_feed import place_evaluation_batches
from pretrain.mesh.sharding import (
    make_batch_sharding,
    make_gather,
    make_replicated_sharding,
)
from pretrain.mesh.xla_options import get_compiler_options
from pretrain.training.losses import Loss, LossOptions, MixedLoss
from pretrain.training.state import init_variables
from pretrain.training.step import make_evaluation_fn
from pretrain.training.targets import check_evaluation

if TYPE_CHECKING:
    from data.mixed_stream import MixedStream

# What a run without metrics of its task never needs.
make_text_writers = call_later("pretrain.evaluation.pair_translations:make_text_writers")
check_run_metrics = call_later("pretrain.evaluation.task_metrics:check_run_metrics")
compute_metrics = call_later("pretrain.evaluation.task_metrics:compute_metrics")
# {name: sum}, {name: weight}
Totals = tuple[dict[str, float], dict[str, float]]


def make_evaluation_step(
    model: Any, loss: Loss | MixedLoss, mesh: jax.sharding.Mesh, *, compute_dtype: str
) -> jax.stages.Wrapped:
    """Return `step.make_evaluation_fn(...)`, jitted for a mesh."""
    options = LossOptions(compute_dtype=compute_dtype, gather=make_gather(mesh))
    score = make_evaluation_fn(model, loss, options)
    whole = make_replicated_sharding(mesh)
    return jax.jit(
        score,
        out_shardings=(whole, whole, whole, make_batch_sharding(mesh)),
        compiler_options=get_compiler_options(mesh),
    )


def make_zero_variables(model: Any, stream: Stream, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Return the model's variables before the first batch of a stream, on the mesh.

    {} where the rows of a batch do not continue the batch before.
    """
    if stream.order != "lanes":
        return {}
    init = functools.partial(init_variables, model, stream.objective, stream.data.batch_size)
    return jax.jit(init, out_shardings=make_batch_sharding(mesh))()


def make_evaluator(
    model: Any,
    loss: Loss | MixedLoss,
    mesh: jax.sharding.Mesh,
    *,
    compute_dtype: str,
    metrics: Sequence[str] = (),
    objective: Objective | Mixed | None = None,
) -> Callable[..., dict[str, Any]]:
    """Return `(params, stream, begin) -> {name: score}` over all rows of the stream's split.

    Masks are fixed, nothing is dropped, and a model's state passes along the lanes. The scores are
    `loss`, every sum of the objective as a mean, `perplexity` (of objectives that predict tokens),
    `targets` (their number), `rows`, each of `metrics`, and `loss/SOURCE` for each of several
    sources. A mixture has these for each part, `PART/...`, and the trained loss. If the loss has no
    row predictions, metrics compare texts that the model generates for each row or pair. The result
    calls `begin` before each batch.

    Args:
      metrics: names in `task_metrics.METRICS`, which need `objective`, the split's.

    Raises ConfigError where a metric is of another objective or its library is absent.
    """
    if metrics:
        check_run_metrics(metrics, objective, model.config)
    if isinstance(loss, MixedLoss):
        make = functools.partial(make_evaluator, model, mesh=mesh, compute_dtype=compute_dtype)
        return functools.partial(
            evaluate_parts, loss, {name: make(part) for name, part in loss.parts.items()}
        )
    generates = metrics and loss.row_predictions is None
    make_writers = functools.cache(functools.partial(make_text_writers, model, mesh))
    score = make_evaluation_step(model, loss, mesh, compute_dtype=compute_dtype)

    def evaluate_split(
        params: Any, stream: Stream, begin: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        totals, scores, predictions, texts = {}, {}, [], []
        translator, generate = make_writers(stream) if generates else (None, None)
        variables = make_zero_variables(model, stream, mesh)
        for index, batch in enumerate(place_evaluation_batches(stream, mesh)):
            begin()
            source, num_rows = stream.describe_evaluation_batch(index)
            *scored, variables = score(params, batch, variables)
            *batch_totals, rows = jax.device_get(scored)
            add_to_totals(totals.setdefault(source, ({}, {})), batch_totals)
            predictions.append(rows)
            if generate:
                begin()
                texts += generate(params, batch)[:num_rows]
        if generate:
            scores = generate.score_texts(metrics, texts, stream.split)
        elif translator:
            scores = translator.score_pairs(metrics, params, begin)
        elif metrics:
            all_rows = np.concatenate(predictions)
            scores = compute_metrics(metrics, all_rows, model.config, stream.split)
        return summarize_split(loss, stream, totals, scores)

    return evaluate_split


def summarize_split(
    loss: Loss, stream: Stream, totals: Mapping[str, Totals], scores: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the scores of all rows of a stream; raise ConfigError if none has a target."""
    summary = summarize_totals(loss, totals, scores)
    check_evaluation(stream, summary["targets"])
    return summary | {"rows": stream.num_rows}


def add_to_totals(totals: Totals, batch_totals: Iterable[Mapping[str, jax.Array]]) -> None:
    """Add the sums and weights of a batch to the split's, in float64 on the host."""
    for total, addition in zip(totals, batch_totals, strict=True):
        for name, value in addition.items():
            total[name] = total.get(name, 0.0) + float(value)


def summarize_totals(
    loss: Loss, by_source: Mapping[str, Totals], scores: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the means of all sources, `scores`, the loss of each source, and the target count."""
    sums, weights = (sum_totals(totals) for totals in zip(*by_source.values()))
    term = loss.loss_terms[0]
    return {
        **score_sums(loss, sums, weights),
        **scores,
        **score_sources(loss, by_source),
        # The weights of a loss may belong to classes; a hit counts 1.
        "targets": weights.get(f"{term}_accuracy", weights[term]),
    }


def sum_totals(totals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return {name: sum over all `totals`}."""
    return {name: sum(total[name] for total in totals) for name in totals[0]}


def score_sums(
    loss: Loss, sums: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return {"loss", each sum as a mean, "perplexity" if the objective predicts tokens}.

    The mean of a split without a target, such as one of a few masked tokens, is NaN.
    """
    means = {name: sums[name] / weights[name] if weights[name] else math.nan for name in sums}
    scores = {"loss": loss.compute_loss(means), **means}
    if loss.row_predictions is None:
        terms = loss.perplexity_terms or loss.loss_terms[:1]
        entropy, num_tokens = (sum(of[name] for name in terms) for of in (sums, weights))
        scores["perplexity"] = math.exp(min(entropy / num_tokens if num_tokens else math.nan, 700))
    return scores


def score_sources(loss: Loss, by_source: Mapping[str, Totals]) -> dict[str, float]:
    """Return {`loss/SOURCE`: mean loss of its rows}; {} for a single source.

    by_source: {name: (sums, weights)}.
    """
    if len(by_source) < 2:
        return {}
    return {
        f"loss/{source}": score_sums(loss, sums, weights)["loss"]
        for source, (sums, weights) in by_source.items()
        if all(weights.values())
    }


def evaluate_parts(
    loss: MixedLoss,
    evaluators: Mapping[str, Callable[..., dict[str, Any]]],
    params: Any,
    stream: MixedStream,
    begin: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return the scores of a mixture of objectives.

    These are the loss that is trained, over all rows and for each source, then the scores of each
    part.
    """
    scores_by_part = {
        name: evaluate(params, stream.streams[name], begin) for name, evaluate in evaluators.items()
    }
    first_scores = next(iter(scores_by_part.values()))
    losses = [name for name in first_scores if name.partition("/")[0] == "loss"]
    return {
        name: sum(loss.part_weights[part] * scores_by_part[part][name] for part in scores_by_part)
        for name in losses
        if all(name in scores for scores in scores_by_part.values())
    } | {
        **loss.merge_parts(scores_by_part),
        "targets": sum(scores["targets"] for scores in scores_by_part.values()),
        "rows": stream.num_rows,
    }
