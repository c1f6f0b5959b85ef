"""Measure the error of gradients that are summed over microbatches.

    python -m benchmarks.speed.microbatch_sums [--config bert_tiny] [--rows 64] [--repeats 3]

The reference is the float32 gradient of the whole batch. For each number of microbatches the table
has the relative error, norm(gradient - reference) / norm(reference), of

    float32    everything in float32
    bfloat16   train.compute_dtype=bfloat16, as `train` sums: in float32
    bf16 sums  the same gradients, but rounded to bfloat16 after each addition

Dropout is off, since each microbatch draws its own. Parameters are taken at the initialization and
the rows are random tokens, of as many seeds as there are repeats; the median is reported. A dated
section is added to benchmarks/results/microbatch_sums.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.harness import (
    format_command,
    format_title,
    int_at_least,
    multiple_of,
    report_errors,
)
from benchmarks.results_pages import add_result
from models import build
from pretrain.config import Run
from pretrain.config import load as load_run
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.state import init_state
from pretrain.training.step import accumulate_gradients, make_gradient

NUMBERS = (1, 8, 64)


def make_batch(run: Run, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return a batch of random tokens for a masked language model."""
    rng = np.random.default_rng(seed)
    objective: Any = run.data.objective
    model: Any = run.model
    length, masked = objective.length, objective.max_predictions
    vocab = model.vocab
    return {
        "token_ids": rng.integers(0, vocab, (rows, length)).astype(np.int32),
        "attention_mask": np.ones((rows, length), bool),
        "token_type_ids": np.zeros((rows, length), np.int32),
        "masked_positions": np.tile(np.arange(masked, dtype=np.int32), (rows, 1)),
        "labels": rng.integers(0, vocab, (rows, masked)).astype(np.int32),
        "label_weights": np.ones((rows, masked), np.float32),
    }


def compute_gradients(run: Run, batch: Any, dtype: str, number: int, rounded: bool = False) -> Any:
    """Return the gradients of a batch in so many microbatches, in float64.

    Args:
      run: the configuration, without dropout.
      batch: the rows.
      dtype: train.compute_dtype.
      number: the number of microbatches.
      rounded: round the sum to bfloat16 after each addition.
    """
    model, loss = build(run.model), find_loss(run.data.objective.name)
    state = jax.jit(partial(init_state, model, run.data.objective, optax.sgd(1.0), 0))()
    compute = make_gradient(model, loss, LossOptions(compute_dtype=dtype))
    if rounded:  # a sum of bfloat16 values is computed in bfloat16 by `accumulate_gradients`
        compute_exact = compute

        def compute(*arguments: Any) -> Any:
            gradients, sums = compute_exact(*arguments)
            return jax.tree.map(lambda x: x.astype(jnp.bfloat16), gradients), sums

    totals = {name: jnp.maximum(w, 1.0) for name, w in loss.sum_weights(batch).items()}
    arguments = (state.params, state.variables, batch, totals, jax.random.key(0))
    gradients, _ = jax.jit(partial(accumulate_gradients, compute, number))(*arguments)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), gradients)


def measure_error(gradients: Any, reference: Any) -> float:
    """Return norm(gradients - reference) / norm(reference)."""
    difference = jax.tree.map(np.subtract, gradients, reference)
    norms = [
        np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(tree)))
        for tree in (difference, reference)
    ]
    return float(norms[0] / norms[1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", default="bert_tiny", help="a masked language model")
    parser.add_argument(
        "--rows", type=multiple_of(max(NUMBERS), max(NUMBERS)), default=64, help="rows of the batch"
    )
    parser.add_argument("--repeats", type=int_at_least(1), default=3, help="batches of random rows")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with report_errors(parser):
        run = load_run(args.config)
    changes = {"dropout": 0.0, "attention_dropout": 0.0}
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, **changes))
    batches = [make_batch(run, args.rows, seed) for seed in range(args.repeats)]
    references = [compute_gradients(run, batch, "float32", 1) for batch in batches]
    lines = ["| microbatches | float32 | bfloat16 | bf16 sums |", "|---|---|---|---|"]
    for number in NUMBERS:
        cells = [
            statistics.median(
                measure_error(compute_gradients(run, batch, dtype, number, rounded), reference)
                for batch, reference in zip(batches, references)
            )
            for dtype, rounded in (("float32", False), ("bfloat16", False), ("bfloat16", True))
        ]
        lines.append(f"| {number} | " + " | ".join(f"{cell:.2g}" for cell in cells) + " |")
    title = format_title(load, f"jax {jax.__version__}")
    add_result(
        "microbatch_sums",
        [title, "", f"`{format_command()}`", "", *lines],
        "Gradients summed over microbatches",
    )


if __name__ == "__main__":
    main()
