"""Time the evaluation of a Transformer-XL with its memory, and by recomputing a sliding window.

    python -m benchmarks.papers.transformer_xl_evaluation [--rounds 5] [--segment 128]

Dai et al. 2019, section 4.4 and table 9. Both ways predict each token from as many tokens before
it, the attention length. With a memory of that length a segment is computed once. A sliding window
of that length is computed again for each token, and only its last state makes logits. The model is
that of `configs/transformer_xl_tiny.py` with random weights and batch size 1, in float32. The two
take turns; figures are the median of the rounds and, in brackets, the minimum and the maximum. A
dated section is added to benchmarks/results/transformer_xl_evaluation.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import (
    format_command,
    format_spread,
    format_title,
    int_at_least,
    int_between,
)
from benchmarks.results_pages import add_result
from models import build
from models.layers.cache import SEGMENT_MEMORY
from pretrain.config import load
from pretrain.kernels.model_hooks import make_local_hooks

NAME = "transformer_xl_evaluation"
PAPER = {800: 363, 1_800: 773, 2_800: 1_409, 3_800: 1_874}  # attention length: times faster


def make_segment_step(
    model: Any, params: Any, token_ids: np.ndarray
) -> Callable[[], tuple[jax.Array, Any]]:
    """Return a function that scores a segment [1, L] with a memory that is full."""

    @jax.jit
    def score_segment(params: Any, memory: Any, token_ids: jax.Array) -> tuple[jax.Array, Any]:
        return model.apply({"params": params, **memory}, token_ids, mutable=[SEGMENT_MEMORY])

    shapes = jax.eval_shape(partial(model.init, jax.random.key(0)), token_ids)[SEGMENT_MEMORY]
    full = {SEGMENT_MEMORY: jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shapes)}
    return partial(score_segment, params, full, token_ids)


def make_window_step(model: Any, params: Any, token_ids: np.ndarray) -> Callable[[], jax.Array]:
    """Return a function that scores the token after a window [1, N]."""

    @jax.jit
    def score_last(params: Any, token_ids: jax.Array) -> jax.Array:
        states_BLD = model.apply({"params": params}, token_ids, method="compute_states")
        return model.apply({"params": params}, states_BLD[:, -1:], method="compute_logits")

    return partial(score_last, params, token_ids)


def time_call(call: Callable[[], Any]) -> float:
    """Return the milliseconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return 1_000 * (time.perf_counter() - start)


def measure_length(length: int, segment: int, rounds: int) -> list[str]:
    """Return the cells of one attention length."""
    config: Any = dataclasses.replace(load("transformer_xl_tiny").model, memory=length, scan=False)
    model: Any = build(config, **make_local_hooks())
    rng = np.random.default_rng(0)
    token_ids = rng.integers(0, config.vocab, (1, length), np.int32)
    shapes = jax.eval_shape(partial(model.init, jax.random.key(0)), token_ids)["params"]
    params = jax.tree.map(
        lambda leaf: jnp.asarray(0.05 * rng.standard_normal(leaf.shape, np.float32)), shapes
    )
    steps = (
        make_segment_step(model, params, token_ids[:, :segment]),
        make_window_step(model, params, token_ids),
    )
    for step in steps:
        time_call(step)  # compiles
    times = np.array([[time_call(step) for step in steps] for _ in range(rounds)])
    with_memory, with_window = times[:, 0] / segment, times[:, 1]
    return [
        f"{length:,}",
        format_spread(with_memory, ".3f"),
        format_spread(with_window, ".1f"),
        format_spread(with_window / with_memory, ",.0f"),
        f"{PAPER[length]:,}",
    ]


def main() -> None:
    """Measure each attention length and add the section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--segment", type=int_between(1, min(PAPER)), default=128)
    args = parser.parse_args()
    load_at_start = os.getloadavg()[0]
    rows = [measure_length(length, args.segment, args.rounds) for length in PAPER]
    lines = [
        format_title(load_at_start, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: milliseconds for each predicted token; the median of the rounds "
        f"and, in brackets, the minimum and the maximum. Segments of {args.segment} tokens, "
        "2 layers of width 128, batch size 1. The paper compares its model on a GPU with another "
        "(Al-Rfou et al. 2018); here both ways have the same weights.",
        "",
        "| attention length | with memory, ms | sliding window, ms | times faster | the paper |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    add_result(NAME, lines, "Evaluation with memory and by a sliding window")


if __name__ == "__main__":
    main()
