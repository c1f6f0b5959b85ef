"""Measure a Reformer's hashing: the task of duplicating symbols, and the error by rounds.

    python -m benchmarks.papers.reformer [--half 64] [--steps 400]

Kitaev et al. 2020, section 2, "analysis on a synthetic task": rows are 0 w 0 w, where w are random
symbols from 1 to 127; a model of one layer predicts the second w. Models are trained with full
attention and with hashing, and each is evaluated with full attention and with several numbers of
rounds. Rows here have 128 symbols, the paper's 1,024. Then the error: attention by hashing against
full attention, as a share of its norm, of rows of 1,024 vectors. A dated section is added to
benchmarks/results/reformer.md, and reformer_error.svg draws the error. --steps 0
measures and draws the error alone and writes no section.
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.harness import RESULTS, format_command, format_title, int_at_least
from benchmarks.results_pages import add_result
from models import build
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.layers.long_rows.hashed_attention import (
    choose_buckets,
    draw_rotations,
    hash_vectors,
    normalize_keys,
)
from models.layers.long_rows.key_chunks import OWN_SCORE, KeyChunks
from models.layers.masks import make_causal_mask
from models.layers.ops import attend
from pretrain.kernels.model_hooks import make_local_hooks

NAME = "reformer"
SYMBOLS, ROWS, EVALUATED = 128, 32, 512
WIDTH, RATE = 64, 3e-3
TRAINED: tuple[int | None, ...] = (None, 4, 1)  # rounds; None: full attention
EVALUATED_ROUNDS: tuple[int | None, ...] = (None, 8, 4, 2, 1)
ERROR_ROUNDS, SPREADS = (1, 2, 4, 8, 16, 32), (0.0, 4.0, 8.0)


def make_config(half: int, rounds: int | None) -> ReformerConfig:
    """Return one layer; rounds: of hashing in 8 chunks, None for full attention."""
    length, width = 2 * half, WIDTH
    chunk = length if rounds is None else length // 8
    return ReformerConfig(
        vocab=SYMBOLS,
        width=width,
        depth=1,
        num_heads=4,
        head_width=width // 4,
        mlp=width,
        dropout=0.0,
        layers=("lsh",),
        hashing=Hashing(chunk=chunk, rounds=rounds or 1),
        local=LocalChunks(chunk=chunk, dropout=0.0),
        axial_shape=(length, 1),  # an embedding of each position
        axial_widths=(width - 1, 1),
    )


def draw_rows(seed: Any, half: int, rows: int) -> jax.Array:
    """Return rows 0 w 0 w, int32 [rows, 2 half]."""
    words = jax.random.randint(jax.random.key(seed), (rows, half - 1), 1, SYMBOLS)
    part = jnp.pad(words, ((0, 0), (1, 0)))
    return jnp.concatenate([part, part], axis=1)


def train(config: ReformerConfig, half: int, steps: int) -> Any:
    """Return the parameters after training on new rows in each step."""
    model: Any = build(config, **make_local_hooks())
    params = jax.jit(model.init)(jax.random.key(0), draw_rows(0, half, 1))["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, RATE, steps // 20, steps)
    optimizer = optax.adam(schedule, b2=0.98)

    def compute_loss(params: Any, tokens: jax.Array, step: Any) -> jax.Array:
        rngs = {"dropout": jax.random.fold_in(jax.random.key(1), step)}
        logits = model.apply({"params": params}, tokens, train=True, rngs=rngs)[:, half:-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, half + 1 :]).mean()

    @jax.jit
    def update(params: Any, state: Any, step: Any) -> tuple[Any, Any, jax.Array]:
        loss, grads = jax.value_and_grad(compute_loss)(params, draw_rows(step, half, ROWS), step)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, start = optimizer.init(params), time.perf_counter()
    for step in range(1, steps + 1):
        params, state, loss = update(params, state, step)
        if step % 250 == 0:
            print(f"step {step} loss {loss:.3f} {time.perf_counter() - start:.0f} s", flush=True)
    return params


def measure_accuracy(config: ReformerConfig, params: Any, half: int) -> float:
    """Return the share of the symbols of the second w that are predicted, on rows never trained."""
    model: Any = build(config, **make_local_hooks())
    apply = jax.jit(partial(model.apply, {"params": params}))
    right = []
    for seed in range(EVALUATED // ROWS):
        tokens = draw_rows(1_000_000 + seed, half, ROWS)
        right.append((apply(tokens)[:, half:-1].argmax(-1) == tokens[:, half + 1 :]).mean())
    return float(np.mean(right))


def measure_errors(q_BLHK: jax.Array, v_BLHK: jax.Array, chunk: int, draws: int) -> list[float]:
    """Return |hashed - full| / |full| of the outputs by the number of rounds, in `ERROR_ROUNDS`."""
    L, H, K = q_BLHK.shape[1:]
    k_BLHK, mask = normalize_keys(q_BLHK), make_causal_mask()
    own_LL = jnp.where(jnp.eye(L, dtype=bool), OWN_SCORE, 0.0)[None, None]
    full_BLHK = attend(q_BLHK, k_BLHK, v_BLHK, mask=mask, bias=own_LL, scale=1.0)
    buckets = choose_buckets(L, chunk, L)

    @partial(jax.jit, static_argnames="rounds")
    def compute_error(key: jax.Array, rounds: int) -> jax.Array:
        rotations = draw_rotations(key, H, K, rounds, buckets)
        chunks = KeyChunks(chunk, chunk, hash_vectors(q_BLHK, rotations, buckets), avoids_self=True)
        hashed = attend(q_BLHK, k_BLHK, v_BLHK, mask=mask.replace(chunks=chunks), scale=1.0)
        return jnp.linalg.norm(hashed - full_BLHK) / jnp.linalg.norm(full_BLHK)

    return [
        float(np.mean([compute_error(jax.random.key(seed), rounds) for seed in range(draws)]))
        for rounds in ERROR_ROUNDS
    ]


def draw_vectors(length: int, spread: float) -> tuple[jax.Array, jax.Array]:
    """Return queries and values of a row, 4 heads of 32: queries are near one of 64 directions.

    spread: the length of what is added to a direction, whose length is 8.
    """
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((64, 4, 32))
    directions *= 8 / np.linalg.norm(directions, axis=-1, keepdims=True)
    noise = rng.standard_normal((length, 4, 32)) * spread / np.sqrt(32)
    q_LHK = directions[rng.integers(0, 64, length)] + noise
    v_LHK = rng.standard_normal((length, 4, 32))
    return jnp.asarray(q_LHK[None], jnp.float32), jnp.asarray(v_LHK[None], jnp.float32)


def draw_errors(errors: Mapping[float, Sequence[float]], path: pathlib.Path) -> None:
    """Draw the errors by the number of rounds, {length added: [error]}, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": NAME, "font.size": 9}
    with matplotlib.rc_context(style):
        figure, ax = pyplot.subplots(figsize=(5.6, 3.8), layout="constrained")
        for (spread, found), marker in zip(errors.items(), "osD", strict=True):
            ax.plot(ERROR_ROUNDS, found, f"{marker}-", label=f"{spread:g}", ms=4)
        ax.set(xscale="log", yscale="log", xlabel="rounds of hashing")
        ax.set_ylabel("|hashed - full| / |full|")
        ax.set_xticks(ERROR_ROUNDS, [str(rounds) for rounds in ERROR_ROUNDS])
        ticks = (0.1, 0.2, 0.5, 1.0)
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        ax.legend(title="length added to a direction of length 8")
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def name_rounds(rounds: int | None) -> str:
    """Return the name of an attention."""
    return "full" if rounds is None else f"{rounds} round{'s' if rounds > 1 else ''}"


def measure_task(half: int, steps: int) -> list[list[str]]:
    """Return the cells of each trained model: its accuracies in %."""
    rows = []
    for trained in TRAINED:
        params = train(make_config(half, trained), half, steps)
        accuracies = [
            measure_accuracy(make_config(half, rounds), params, half) for rounds in EVALUATED_ROUNDS
        ]
        rows.append([name_rounds(trained), *(f"{100 * accuracy:.1f}" for accuracy in accuracies)])
        print(rows[-1], flush=True)
    return rows


def format_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def main() -> None:
    """Measure the task and the error, and add the section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--half", type=int_at_least(16), default=64, help="of a row, in symbols")
    parser.add_argument("--steps", type=int_at_least(0), default=400)
    args = parser.parse_args()
    load_at_start = os.getloadavg()[0]
    errors = {}
    for spread in SPREADS:
        errors[spread] = measure_errors(*draw_vectors(1_024, spread), chunk=64, draws=5)
        print(spread, errors[spread], flush=True)
    if not args.steps:
        draw_errors(errors, RESULTS / f"{NAME}_error.svg")
        return
    accuracies = measure_task(args.half, args.steps)
    lines = [
        format_title(load_at_start, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: symbols of the second w that are predicted, in %, on {EVALUATED} "
        f"new rows 0 w 0 w of {2 * args.half} symbols. One layer of width {WIDTH} with "
        f"4 heads, chunks of {args.half // 4}, {args.steps:,} steps of {ROWS} new rows.",
        "",
        *format_table(
            ["trained with", *(f"evaluated with {name_rounds(one)}" for one in EVALUATED_ROUNDS)],
            accuracies,
        ),
        "",
        "The norm of hashed - full over full attention's norm, the mean of 5 draws of "
        "rotations: 1,024 positions, 4 heads of 32, chunks of 64, 32 buckets. A query is one of 64 "
        "directions of length 8, and a random vector of the given length is added.",
        "",
        *format_table(
            ["length added", *(name_rounds(rounds) for rounds in ERROR_ROUNDS)],
            [[f"{one:g}", *(f"{error:.2f}" for error in row)] for one, row in errors.items()],
        ),
        "",
        f"![error by rounds]({NAME}_error.svg)",
    ]
    add_result(NAME, lines, "Reformer: hashing against full attention")
    draw_errors(errors, RESULTS / f"{NAME}_error.svg")


if __name__ == "__main__":
    main()
