"""Measure the cost of tf.data in a training step, against batches that do not pass through it.

    python -m benchmarks.speed.input_step [--rounds 9] [--batches 400] [--steps 8]

BERT-mini, 32 rows of 128, float32, on a synthetic store (of `benchmarks.speed.input`), rows within
documents and with packed rows. Two feeds take turns: "elements" is the feed of training; in
"beside" only indices pass through tf.data, and the batches stay NumPy arrays in a dict, as in the
trainer until 2026-11-23.

Each round reads `--batches` batches of both feeds and measures the CPU time per batch. Then it
trains `--steps` steps on both feeds and measures the time and the CPU time of a step, and the
share of the time in which the loop waits for input. The cost of tf.data is the difference of the
feeds' CPU times per batch, as a share of a step's CPU time: the difference of two steps' times is
smaller than the variation of a step. Figures are medians over the rounds. A dated section is
appended to benchmarks/results/input.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from benchmarks.harness import format_command, format_title, int_at_least
from benchmarks.results_pages import add_result
from benchmarks.speed.input import make_stores
from data import batch_spec
from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import Stream
from data.read_ahead import BUILT_TOKENS, ENDLESS, MAX_BATCHES
from data.store.reader import Store
from data.tensorflow_import import import_tensorflow
from data.tf_dataset import GROUP_TOKENS, build_many
from pretrain.config import load
from pretrain.mesh.device_feed import prefetch_to_devices
from pretrain.mesh.sharding import make_mesh
from pretrain.training.program import Program, make_program

ROW_KINDS = ("documents", "packed")
FEEDS = ("elements", "beside")


class IndexFedStream:
    """A stream whose batches are passed in a dict, while a dataset passes only their indices."""

    def __init__(self, stream: Stream) -> None:
        """Wrap a stream."""
        self.stream, self.data = stream, stream.data
        self.streams = {"": self}  # as `Stream.streams`

    def iterate_batches(self, start_step: int, lo: int = 0, hi: int | None = None) -> Iterator[Any]:
        """Yield the batches from a step on; `lo` and `hi` are the process's share of the rows."""
        tf, (lo, hi) = import_tensorflow(), self.stream.slice_share(lo, hi)
        groups: dict[int, Any] = {}
        tokens = (hi - lo) * self.stream.tokens_per_row
        together, group = (
            min(max(most // tokens, 1), MAX_BATCHES) for most in (BUILT_TOKENS, GROUP_TOKENS)
        )

        def make_batch(first: int, number: int) -> Any:
            batch, rows = self.stream.build_batch(first, lo, hi, number), number * (hi - lo)
            batch_spec.check_batch(batch, self.stream.objective, rows, self.stream.vocabulary)
            return batch

        def build_group(first: Any) -> Any:
            groups[int(first)], error = build_many(make_batch, int(first), group, together)
            if error:
                raise error
            return first

        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = self.data.threads
        options.threading.max_intra_op_parallelism = 1
        dataset = tf.data.Dataset.range(start_step, ENDLESS, group)
        dataset = dataset.map(
            lambda first: tf.numpy_function(build_group, [first], np.int64, stateful=False),
            num_parallel_calls=self.data.threads,
        )
        indices = dataset.prefetch(1).with_options(options).as_numpy_iterator()
        for first in indices:
            for part in groups.pop(int(first)):
                for i in range(0, len(next(iter(part.values()))), hi - lo):
                    yield {key: array[i : i + hi - lo] for key, array in part.items()}


def time_reading(source: Stream | IndexFedStream, count: int) -> float:
    """Return the CPU seconds per batch of reading `count` batches of a stream."""
    generator: Any = source.iterate_batches(1000)
    with contextlib.closing(generator) as batches:
        for _ in itertools.islice(batches, 2 * MAX_BATCHES):  # warm-up
            pass
        start = time.process_time()
        for _ in itertools.islice(batches, count):
            pass
        return (time.process_time() - start) / count


def time_steps(
    program: Program,
    state: Any,
    source: Stream | IndexFedStream,
    mesh: jax.sharding.Mesh,
    count: int,
) -> tuple[Any, np.ndarray]:
    """Train `count` steps.

    Returns:
      (state, [seconds of a step, its CPU seconds, seconds that it waits for its batch]).
    """
    waiting = 0.0
    feed: Any = source  # both have what the feed of training needs
    with contextlib.closing(prefetch_to_devices(feed, mesh, 0, count + 2)) as batches:
        for _ in range(2):  # the first batches are not ready yet
            state, metrics = program.train_step(state, next(batches)[1])
        jax.block_until_ready(metrics)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            start = time.perf_counter()
            _, batch = next(batches)
            waiting += time.perf_counter() - start
            state, metrics = program.train_step(state, batch)
            jax.block_until_ready(metrics)
    seconds = time.perf_counter() - wall, time.process_time() - cpu, waiting
    return state, np.array(seconds) / count


def measure_rows(kind: str, store: Store, args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table for a kind of rows."""
    objective = MaskedLm(length=128, max_predictions=20, rows=kind)
    data = Data(objective=objective, batch_size=32)
    run = load("bert_mini", ["model.vocab=30592"])
    run = dataclasses.replace(run, data=data)
    stream = Stream(store, data, seed=1)
    sources, mesh = {"elements": stream, "beside": IndexFedStream(stream)}, make_mesh(run.mesh)
    program = make_program(run, mesh)
    with jax.set_mesh(mesh):
        state = program.init()
        read = {name: [] for name in FEEDS}
        steps = {name: [] for name in FEEDS}
        for round_ in range(args.rounds + 1):
            for name in FEEDS if round_ % 2 else FEEDS[::-1]:
                read[name].append(time_reading(sources[name], args.batches))
                state, seconds = time_steps(program, state, sources[name], mesh, args.steps)
                steps[name].append(seconds)
    reads = {name: np.median(read[name][1:]) for name in FEEDS}  # the first round compiles
    medians = {name: np.median(steps[name][1:], axis=0) for name in FEEDS}
    cost = (reads["elements"] - reads["beside"]) / medians["beside"][1]
    for name in FEEDS:
        wall, cpu, waiting = medians[name]
        ratio = wall / medians["beside"][0]
        cells = [f"{reads[name] * 1e6:.0f}", f"{reads[name] / cpu:.3%}", f"{waiting / wall:.3%}"]
        last_cell = f"{cost:+.3%}" if name == "elements" else ""
        yield f"| {kind} | {name} | {' | '.join(cells)} | {ratio:.3f} | {last_cell} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=9)
    parser.add_argument("--batches", type=int_at_least(1), default=400)
    parser.add_argument("--steps", type=int_at_least(1), default=8)
    parser.add_argument("--tokens", type=int_at_least(100_000), default=4_000_000)
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    columns = [
        *("rows", "feed", "CPU µs a batch, read only", "of a step's CPU time"),
        *("waiting, of a step's time", "a step, of `beside`", "tf.data's cost, of a step"),
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        store = make_stores(pathlib.Path(folder), args.tokens)["bert"]
        for kind in ROW_KINDS:
            lines += measure_rows(kind, store, args)
    note = (
        f"`{format_command()}`: the cost of tf.data in a step of BERT-mini, 32 rows of 128, "
        f"float32; medians of {args.rounds} rounds in turns. Other programs "
        "ran on the machine as well: "
        "only ratios within one run are comparable."
    )
    versions = (
        f"NumPy {np.__version__}",
        f"TensorFlow {import_tensorflow('a benchmark').__version__}",
    )
    add_result("input", [format_title(load_before, *versions), "", note, "", *lines])


if __name__ == "__main__":
    main()
