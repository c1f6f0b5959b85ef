"""Compare a character LSTM with byte n-gram models of orders 1 to 20 on the end of a text.

    python -m benchmarks.papers.char_lstm TRAINING TEST --workdir runs/char_lstm [--orders 20]

TRAINING and TEST are two files of text; the run is of an LSTM that `python -m pretrain train
char_lstm` trained on the bytes of the first one. Both models predict each byte of TEST but the
first from those before it: the n-gram model (`byte_ngrams`) from at most n - 1, the LSTM, whose
state is carried through the whole file, from all. A dated section is added to
benchmarks/results/char_lstm.md.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import (
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.papers.byte_ngrams import score_bytes
from benchmarks.results_pages import add_result
from models import build
from models.layers.cache import CARRY
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.workdir.trained import Trained, open_trained

NAME = "char_lstm"
BYTES_AT_ONCE = 1_024
# Nats per character on War and Peace (Karpathy et al. 2015): a 3-layer LSTM of 512 cells, and an
# n-gram model of order 20.
PAPER = {"LSTM": 1.077, "n-gram": 1.195}


def score_by_lstm(trained: Trained, text: bytes) -> np.ndarray:
    """Return the log-probability of each byte but the first, float64 nats.

    Raises:
      ValueError: the vocabulary of the run is not of single bytes.
    """
    ((ids, _),) = trained.vocabulary.encode_with_offsets([text.decode()])
    if len(ids) != len(text):
        raise ValueError(
            f"{trained.workdir}: {len(ids):,} tokens for {len(text):,} bytes. Prepare the text "
            "with --layout gpt2 --vocab-size 257, which is a vocabulary of single bytes"
        )
    model: Any = build(trained.run.model, **make_local_hooks())

    @jax.jit
    def score_row(carry: Any, ids_1L: jax.Array, next_L: jax.Array) -> tuple[Any, jax.Array]:
        variables = {"params": trained.params, CARRY: carry}
        states, changed = model.apply(variables, ids_1L, mutable=[CARRY], method="compute_states")
        logits_1LV = model.apply(variables, states, method="compute_logits")
        log_p_LV = jax.nn.log_softmax(logits_1LV[0])
        return changed[CARRY], jnp.take_along_axis(log_p_LV, next_L[:, None], axis=1)[:, 0]

    token_ids, found, carry = np.array(ids, np.int32), [], {}
    for start in range(0, len(text) - 1, BYTES_AT_ONCE):
        part = token_ids[start : start + BYTES_AT_ONCE + 1]
        padded = np.pad(part, (0, BYTES_AT_ONCE + 1 - len(part)))  # of the last call alone
        carry, log_p = score_row(carry, padded[None, :-1], padded[1:])
        found.append(np.asarray(log_p, np.float64)[: len(part) - 1])
    return np.concatenate(found)


def format_row(name: str, nats: float, num_bytes: int, num_characters: int) -> str:
    """Return a row of the table: bits per byte, bits and nats per character."""
    bits = nats / math.log(2)
    return (
        f"| {name} | {bits / num_bytes:.4f} | {bits / num_characters:.4f} | "
        f"{nats / num_characters:.4f} |"
    )


def describe_run(trained: Trained) -> str:
    """Return one sentence about the run: sizes, steps and bytes read."""
    run = trained.run
    model: Any = run.model
    size = sum(leaf.size for leaf in jax.tree.leaves(trained.params))
    row: Any = run.data.objective
    read = trained.step * run.data.batch_size * row.length
    return (
        f"The LSTM has {model.depth} layers of {model.width} cells, {size:,} parameters, and has "
        f"read {read:,} bytes in {trained.step:,} steps."
    )


def main() -> None:
    """Score the test text by all models and add the section to the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("training", type=pathlib.Path)
    parser.add_argument("test", type=pathlib.Path)
    parser.add_argument("--workdir", required=True, help="workdir of the LSTM")
    parser.add_argument("--orders", type=int_at_least(1), default=20, metavar="N")
    args = parser.parse_args()
    for name in ("training", "test"):
        require_paths(parser, name, getattr(args, name))
    with report_errors(parser):
        trained = open_trained(args.workdir)
    load = os.getloadavg()[0]
    training, test = args.training.read_bytes(), args.test.read_bytes()
    num_bytes, num_characters = len(test) - 1, len(test.decode()) - 1
    row = partial(format_row, num_bytes=num_bytes, num_characters=num_characters)
    nats_N = -np.log(score_bytes(training, test, args.orders)[:, 1:]).sum(axis=1)
    lstm = row("LSTM", -score_by_lstm(trained, test).sum())
    best = int(nats_N.argmin()) + 1
    lines = [
        format_title(load, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: {len(training):,} bytes of training text, {len(test):,} bytes of "
        f"test text. {describe_run(trained)} The n-gram models are interpolated, with modified "
        f"Kneser-Ney smoothing; order {best} is best. The paper has, in nats per "
        f"character of War and Peace, {PAPER['LSTM']} of its LSTM and {PAPER['n-gram']} of its "
        "n-gram model.",
        "",
        "| model | bits per byte | bits per character | nats per character |",
        "|---|---|---|---|",
        lstm,
        *(row(f"{n}-gram", nats) for n, nats in enumerate(nats_N, 1)),
    ]
    add_result(NAME, lines, "A character LSTM and n-gram models of bytes")


if __name__ == "__main__":
    main()
