"""Time a Sparse Transformer's gradient step by both patterns, and by dense attention.

    python -m benchmarks.papers.sparse_transformer [--rounds 3] [--gib 10]

Child et al. 2019, table 2: seconds an iteration of the model of enwik8, on rows of 12,288 bytes, of
dense attention, of the fixed and of the strided pattern. Here one layer of it, with heads of width
64 and batch size 1, in float32: at 12,288 positions of width 128, and at 6,144 of width 512,
because dense attention holds the scores of all pairs. The backward pass recomputes the layer.
The kinds of attention take turns; figures are the median of the rounds and, in brackets, the
minimum and the maximum. A dated section is added to benchmarks/results/sparse_transformer.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import format_command, format_spread, format_title, int_at_least
from benchmarks.results_pages import add_result
from models import build
from pretrain.config import load
from pretrain.kernels.model_hooks import make_local_hooks

NAME = "sparse_transformer"
PAPER = {"dense": 1.31, "fixed": 0.55, "strided": 0.35}  # seconds an iteration, 12,288 positions
HEAD_WIDTH = 64
SIZES = ((12_288, 128), (6_144, 512))  # (positions, width)


class Step(NamedTuple):
    """A compiled gradient of the loss, and its arguments."""

    call: Any
    arguments: tuple[Any, ...]

    @property
    def temporary_bytes(self) -> int:
        """The bytes of its temporaries."""
        return self.call.memory_analysis().temp_size_in_bytes

    def time_call(self) -> float:
        """Return the seconds of one call."""
        start = time.perf_counter()
        jax.block_until_ready(self.call(*self.arguments))
        return time.perf_counter() - start


def attend_densely(attend: Any, *vectors: jax.Array, mask: Any, **options: Any) -> jax.Array:
    """Return the attention to all earlier positions, by `attend`."""
    return attend(*vectors, mask=mask.replace(pattern=None), **options)


def compile_step(kind: str, length: int, width: int) -> Step:
    """Return the gradient of the next-token loss on a row of random bytes.

    kind: "dense", "fixed" or "strided".
    """
    config = dataclasses.replace(
        load("sparse_transformer_enwik8").model,
        **dict(length=length, width=width, mlp=4 * width, num_heads=width // HEAD_WIDTH),
        **dict(depth=1, dropout=0.0, pattern="strided" if kind == "strided" else "fixed"),
    )
    ops = make_local_hooks()["ops"]
    if kind == "dense":
        ops = ops._replace(attend=partial(attend_densely, ops.attend))
    model: Any = build(config, ops=ops)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.vocab, (1, length), np.int32)
    shapes = jax.eval_shape(partial(model.init, jax.random.key(0)), ids)["params"]
    params = jax.tree.map(
        lambda leaf: jnp.asarray(0.05 * rng.standard_normal(leaf.shape, np.float32)), shapes
    )

    def compute_loss(params: Any, ids: jax.Array) -> jax.Array:
        logits_BLV = model.apply({"params": params}, ids)
        scores_BLV = jax.nn.log_softmax(logits_BLV[:, :-1])
        return -jnp.take_along_axis(scores_BLV, ids[:, 1:, None], axis=-1).mean()

    return Step(
        jax.jit(jax.value_and_grad(compute_loss)).lower(params, ids).compile(), (params, ids)
    )


def measure_size(length: int, width: int, rounds: int, most_bytes: float) -> list[list[str]]:
    """Return the cells of each kind of attention.

    Raises:
      SystemExit: a step needs more than `most_bytes` of temporaries.
    """
    steps = {kind: compile_step(kind, length, width) for kind in PAPER}
    for kind, step in steps.items():
        if step.temporary_bytes > most_bytes:
            raise SystemExit(
                f"{kind} attention at {length} positions of width {width} needs "
                f"{step.temporary_bytes / 2**30:.1f} GiB of temporaries; raise --gib"
            )
        step.time_call()
    seconds = [{kind: step.time_call() for kind, step in steps.items()} for _ in range(rounds)]
    rows = []
    for kind, step in steps.items():
        own = np.array([found[kind] for found in seconds])
        shares = own / np.array([found["dense"] for found in seconds])
        cells = [f"{length:,}", str(width), kind, format_spread(own, ".2f")]
        cells += [format_spread(shares, ".3f"), f"{PAPER[kind] / PAPER['dense']:.2f}"]
        rows.append([*cells, f"{step.temporary_bytes / 2**30:.2f}"])
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure both sizes and add the section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    parser.add_argument("--gib", type=int_at_least(1), default=10, help="of temporaries, at most")
    args = parser.parse_args()
    load_at_start, rows = os.getloadavg()[0], []
    for length, width in SIZES:
        rows += measure_size(length, width, args.rounds, args.gib * 2.0**30)
    lines = [
        format_title(load_at_start, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: seconds of a gradient step of one layer with heads of width 64, "
        "batch size 1, float32; stride 128, c = 32, merged heads. The median of the rounds and, in "
        "brackets, the minimum and the maximum. The paper's shares are of 30 layers of width 512 "
        "at 12,288 positions on GPUs (1.31, 0.55 and 0.35 s). GiB: temporaries as compiled.",
        "",
        "| positions | width | attention | seconds | share of dense | the paper's share | GiB |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    add_result(NAME, lines, "Sparse Transformer: time of a step")


if __name__ == "__main__":
    main()
