"""Compare Linformer's time and memory with full attention's (Wang et al. 2020, table 3).

    python -m benchmarks.papers.linformer_savings [--rounds 5] [--longest 65536] [--gib 10]

One layer of width 768 with 12 heads, as RoBERTa-base has, on rows of random tokens in float32, with
one projection for all. The paper's table is of inference on a GPU: "time saved" is the speed-up,
"memory saved" the ratio of the largest batches. Here time is the forward pass's, and the
gradient, in batches of 4,096 tokens or one row. Memory is the bytes of temporaries that XLA has
compiled for one batch, whose ratio equals the largest batches'. The models take turns; figures
are the median of the rounds. What needs more than --gib is compiled and not timed. A dated section
is added to benchmarks/results/linformer_savings.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import format_command, format_title, int_at_least
from benchmarks.results_pages import add_result
from models import build
from models.config.bert import BertConfig
from models.config.linformer import LinformerConfig
from pretrain.kernels.model_hooks import make_local_hooks

NAME = "linformer_savings"
TOKENS = 4_096  # of a batch
RANKS = (128, 256, 512)
# {n: (time saved, memory saved) at each of RANKS}
PAPER = {
    512: ((1.5, 1.3), (1.7, 1.5)),
    1_024: ((1.7, 1.6, 1.3), (3.0, 2.9, 1.8)),
    2_048: ((2.6, 2.4, 2.1), (6.1, 5.6, 3.6)),
    4_096: ((3.4, 3.2, 2.8), (14, 13, 8.3)),
    8_192: ((5.5, 5.0, 4.4), (28, 26, 17)),
    16_384: ((8.6, 7.8, 7.0), (56, 48, 32)),
    32_768: ((13, 12, 11), (56, 48, 36)),
    65_536: ((20, 18, 16), (60, 52, 40)),
}


class Case(NamedTuple):
    """A compiled function of (parameters, token ids, mask), and its arguments' shapes."""

    call: Any
    params: Any
    rows: tuple[int, int]

    @property
    def temporary_bytes(self) -> int:
        """The bytes of its temporaries."""
        return self.call.memory_analysis().temp_size_in_bytes

    def make_arguments(self) -> tuple[Any, ...]:
        """Return random parameters, random ids and a mask of no padding."""
        rng = np.random.default_rng(0)
        params = jax.tree.map(
            lambda leaf: jnp.asarray(0.02 * rng.standard_normal(leaf.shape, np.float32)),
            self.params,
        )
        return params, rng.integers(0, 100, self.rows, np.int32), np.ones(self.rows, bool)


def compile_case(length: int, rank: int | None, gradient: bool) -> Case:
    """Return the forward pass or the gradient of an encoder; rank: None for full attention."""
    sizes: dict[str, Any] = {
        **dict(vocab=100, length=length, depth=1, segments=1, scan=False),
        **dict(dropout=0.0, attention_dropout=0.0),
    }
    config = BertConfig(**sizes) if rank is None else LinformerConfig(**sizes, rank=rank)
    model: Any = build(config, **make_local_hooks())
    rows = max(1, TOKENS // length), length
    ids, mask = jax.ShapeDtypeStruct(rows, jnp.int32), jax.ShapeDtypeStruct(rows, bool)
    init = partial(model.init, jax.random.key(0), method="encode")
    params = jax.eval_shape(init, ids, mask)["params"]

    def encode(params: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return model.apply({"params": params}, ids, mask, method="encode")[0]

    def compute_loss(params: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.square(encode(params, ids, mask)).mean()

    call = jax.jit(jax.grad(compute_loss) if gradient else encode)
    return Case(call.lower(params, ids, mask).compile(), params, rows)


def time_rounds(cases: list[Case], rounds: int) -> np.ndarray:
    """Return the seconds of each case in each round, [rounds, cases]. The cases take turns."""
    arguments = [case.make_arguments() for case in cases]

    def time_call(call: Callable[..., Any], given: tuple[Any, ...]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(call(*given))
        return time.perf_counter() - start

    def run_round() -> list[float]:
        return [time_call(case.call, given) for case, given in zip(cases, arguments)]

    run_round()
    return np.array([run_round() for _ in range(rounds)])


def measure_length(length: int, rounds: int, most_bytes: float) -> Iterator[tuple[str, list[str]]]:
    """Yield (name of a table, cells) of one length; a cell for each rank that is below it."""
    ranks = [rank for rank in RANKS if rank < length]
    for gradient, name in ((False, "forward"), (True, "gradient")):
        cases = [compile_case(length, rank, gradient) for rank in (None, *ranks)]
        sizes = np.array([case.temporary_bytes for case in cases])
        yield f"memory, {name}", [format(ratio, ".1f") for ratio in sizes[0] / sizes[1:]]
        if sizes.max() > most_bytes:
            yield f"time, {name}", ["not timed"] * len(ranks)
        else:
            seconds = time_rounds(cases, rounds)
            ratios = np.median(seconds[:, :1] / seconds[:, 1:], axis=0)
            yield f"time, {name}", [format(ratio, ".2f") for ratio in ratios]
        gc.collect()


def format_table(quantity: int, found: dict[int, dict[str, list[str]]]) -> list[str]:
    """Return the table of time (0) or memory (1): forward, gradient and the paper's at each k."""
    name = ("time", "memory")[quantity]
    head = [f"k = {rank}: {what}" for rank in RANKS for what in ("forward", "gradient", "paper")]
    lines = [f"| n | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for length, tables in found.items():
        cells = []
        for i in range(len(RANKS)):
            own = (tables[f"{name}, {what}"] for what in ("forward", "gradient"))
            paper = [f"{value:g}" for value in PAPER[length][quantity]]
            cells += [column[i] if i < len(column) else "" for column in (*own, paper)]
        lines.append(f"| {length:,} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure each length and add the section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--longest", type=int_at_least(512), default=65_536, help="row in tokens")
    parser.add_argument("--gib", type=int_at_least(1), default=10, help="of temporaries, at most")
    args = parser.parse_args()
    load_at_start, found = os.getloadavg()[0], {}
    for length in (length for length in PAPER if length <= args.longest):
        found[length] = dict(measure_length(length, args.rounds, args.gib * 2.0**30))
        print(length, found[length], flush=True)
    lines = [
        format_title(load_at_start, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: how many times more time and memory full attention takes. One "
        f"layer of width 768 with 12 heads in float32, {TOKENS:,} tokens a batch or one row, one "
        "projection for all. Memory: temporaries as compiled. Time: the median ratio of "
        f"{args.rounds} rounds; not timed where full attention needs more than {args.gib} GiB. The "
        "paper's figures are of inference on a GPU of 16 GB (table 3).",
        "",
        "Time saved:",
        "",
        *format_table(0, found),
        "",
        "Memory saved:",
        "",
        *format_table(1, found),
    ]
    add_result(NAME, lines, "Linformer and full attention: time and memory")


if __name__ == "__main__":
    main()
