"""What tf.data costs a training step: batches as its elements, beside batches that are handed over past it.

    python -m benchmarks.input_step [--rounds 9] [--batches 400] [--steps 8] [--tokens 4000000]

BERT-mini, 32 rows of 128, float32, on a synthetic store (benchmarks/input.py), with rows within documents and with packed rows. Two feeds take turns:
`elements` is what training reads; in `beside` only indices run through tf.data and the batches stay NumPy's, in a dict, as the trainer
read them until 2026-11-23.

Each round reads `--batches` batches of either feed, nothing else done with them, and counts the CPU time of the process a batch. Then it trains
`--steps` steps on either feed, and counts the time and the CPU time of a step, and the share that the loop waits for its input. The cost of tf.data is the
difference of the feeds' CPU times, as a share of a step's: the difference of two steps' times is smaller than what a step varies by.
Medians over the rounds. A dated section is appended to benchmarks/results/input.md.
"""

import argparse
import contextlib
import dataclasses
import itertools
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from benchmarks.harness import append, at_least, command, title
from benchmarks.input import synthetic
from data import batch_spec
from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import HANDED, MADE, MOST, Stream
from data.tf_dataset import ENDLESS, build_many, import_tensorflow
from pretrain.config import load
from pretrain.distributed.device_feed import feed
from pretrain.distributed.sharding import make_mesh
from pretrain.training.program import make_program

KINDS = ("documents", "packed")
FEEDS = ("elements", "beside")


class Beside:
    """A stream whose batches are handed over in a dict, beside a dataset of indices."""

    def __init__(self, stream):
        self.stream, self.data = stream, stream.data

    def batches(self, start_step, lo=0, hi=None):
        tf, (lo, hi), made = import_tensorflow(), self.stream.share(lo, hi), {}
        tokens = (hi - lo) * self.stream.tokens_per_row
        together, group = (min(max(most // tokens, 1), MOST) for most in (MADE, HANDED))

        def make(first, number):
            batch, rows = self.stream.batch(first, lo, hi, number), number * (hi - lo)
            batch_spec.check(batch, self.stream.objective, rows, self.stream.vocabulary)
            return batch

        def build(first):
            made[int(first)], error = build_many(make, int(first), group, together)
            if error:
                raise error
            return first

        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = self.data.threads
        options.threading.max_intra_op_parallelism = 1
        dataset = tf.data.Dataset.range(start_step, ENDLESS, group)
        dataset = dataset.map(
            lambda first: tf.numpy_function(build, [first], np.int64, stateful=False),
            num_parallel_calls=self.data.threads,
        )
        indices = dataset.prefetch(1).with_options(options).as_numpy_iterator()
        for first in indices:
            for part in made.pop(int(first)):
                for i in range(0, len(next(iter(part.values()))), hi - lo):
                    yield {key: array[i : i + hi - lo] for key, array in part.items()}


def read_only(source, count):
    """Return the CPU seconds of a batch that is only read."""
    with contextlib.closing(source.batches(1000)) as batches:
        for _ in itertools.islice(batches, 2 * MOST):  # until it runs
            pass
        began = time.process_time()
        for _ in itertools.islice(batches, count):
            pass
        return (time.process_time() - began) / count


def take_steps(program, state, source, mesh, count):
    """Return (state, [seconds of a step, its CPU seconds, seconds that it waits for its batch])."""
    waiting = 0.0
    with contextlib.closing(feed(source, mesh, 0, count + 2)) as batches:
        for _ in range(2):  # the first batches are not there yet
            state, metrics = program.update(state, next(batches)[1])
        jax.block_until_ready(metrics)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            _, batch = next(batches)
            waiting += time.perf_counter() - began
            state, metrics = program.update(state, batch)
            jax.block_until_ready(metrics)
    seconds = time.perf_counter() - wall, time.process_time() - cpu, waiting
    return state, np.array(seconds) / count


def measure(kind, store, args):
    """Return the lines of the table for a kind of rows."""
    objective = MaskedLm(length=128, max_predictions=20, rows=kind)
    data = Data(objective=objective, batch_size=32)
    run = load("bert_mini", ["model.vocab=30592"])
    run = dataclasses.replace(run, data=data)
    stream = Stream(store, data, seed=1)
    sources, mesh = {"elements": stream, "beside": Beside(stream)}, make_mesh(run.mesh)
    program = make_program(run, mesh)
    with jax.set_mesh(mesh):
        state = program.init()
        read = {name: [] for name in FEEDS}
        steps = {name: [] for name in FEEDS}
        for round_ in range(args.rounds + 1):
            for name in FEEDS if round_ % 2 else FEEDS[::-1]:
                read[name].append(read_only(sources[name], args.batches))
                state, seconds = take_steps(program, state, sources[name], mesh, args.steps)
                steps[name].append(seconds)
    reads = {name: np.median(read[name][1:]) for name in FEEDS}  # the first round compiles
    medians = {name: np.median(steps[name][1:], axis=0) for name in FEEDS}
    cost = (reads["elements"] - reads["beside"]) / medians["beside"][1]
    for name in FEEDS:
        wall, cpu, waiting = medians[name]
        ratio = wall / medians["beside"][0]
        yield (
            f"| {kind} | {name} | {reads[name] * 1e6:.0f} | {reads[name] / cpu:.3%} | {waiting / wall:.3%} | {ratio:.3f} |"
            f" {f'{cost:+.3%}' if name == 'elements' else ''} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=at_least(1), default=9)
    parser.add_argument("--batches", type=at_least(1), default=400)
    parser.add_argument("--steps", type=at_least(1), default=8)
    parser.add_argument("--tokens", type=at_least(100_000), default=4_000_000)
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    columns = [
        *("rows", "feed", "CPU µs a batch, read only", "of a step's CPU time"),
        *("waiting, of a step's time", "a step, of `beside`", "tf.data's cost, of a step"),
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        store = synthetic(pathlib.Path(folder), args.tokens)["bert"]
        for kind in KINDS:
            lines += measure(kind, store, args)
    note = (
        f"`{command()}`: what tf.data costs a step of BERT-mini, 32 rows of 128, float32; medians of {args.rounds} rounds in turns. "
        "Other programs had the machine as well: only ratios of one run compare."
    )
    versions = f"NumPy {np.__version__}", f"TensorFlow {import_tensorflow().__version__}"
    append("input.md", [title(load_before, *versions), "", note, "", *lines])


if __name__ == "__main__":
    main()
