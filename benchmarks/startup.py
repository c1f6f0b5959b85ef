"""How long `train` takes from the start of its process to the end of its first step, with an empty compilation cache and with a filled one.

    python -m benchmarks.startup [--store runs/builtin] [--config bert_tiny] [--rounds 5]

Each round is a cold start and a warm one, in workdirs of their own, under the environment that launch.sh sets; the warm ones share a
cache that a start before the first round has filled. A step has ended when its row stands in metrics.jsonl, which is one step later; the time
until the process has ended (one step, a checkpoint, no evaluation) is told besides. A dated section is appended to
benchmarks/results/startup.md.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import (
    KEEP_PAGES,
    ROOT,
    append,
    at_least,
    command,
    spread,
    title,
    told_plainly,
)
from data.store.reader import Store
from pretrain.config import load


def start(config, store, cache, workdir):
    """(seconds to the first step's row, seconds to the end of the process)."""
    words = [
        "train",
        config,
        "--workdir",
        workdir,
        f"data.store={store}",
        "train.stop_at_step=2",
        "evaluate.every=0",
    ]
    environment = (
        os.environ | KEEP_PAGES | {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    )
    rows, first, began = workdir / "metrics.jsonl", None, time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pretrain", *map(str, words)],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
    ) as process:
        os.set_blocking(process.stderr.fileno(), False)
        said = b""
        while process.poll() is None:
            said += process.stderr.read() or b""
            if first is None and rows.exists() and b"\n" in rows.read_bytes():
                first = time.monotonic() - began
            time.sleep(0.005)
        whole = time.monotonic() - began
        said += process.stderr.read() or b""
    if process.returncode or first is None:
        raise RuntimeError(
            f"train ended with status {process.returncode}:\n{said.decode(errors='replace')}"
        )
    return first, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=pathlib.Path, default="runs/builtin")
    parser.add_argument("--config", default="bert_tiny")
    parser.add_argument("--rounds", type=at_least(1), default=5)
    args = parser.parse_args()
    load_before, store = os.getloadavg()[0], args.store.resolve()
    with told_plainly(parser):
        load(args.config, [f"data.store={store}"])
        Store.open(store)
    found = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        start(args.config, store, folder / "warm", folder / "fills")
        for i in range(args.rounds):
            found["cold"].append(start(args.config, store, folder / f"cold{i}", folder / f"a{i}"))
            found["warm"].append(start(args.config, store, folder / "warm", folder / f"b{i}"))
    lines = ["| cache | to the first step, s | to the end, s |", "|---|---|---|"]
    lines += [
        f"| {name} | {spread([x for x, _ in times], '.1f')} | {spread([y for _, y in times], '.1f')} |"
        for name, times in found.items()
    ]
    ratio = np.median([warm[0] / cold[0] for cold, warm in zip(*found.values(), strict=True)])
    note = f"`{command()}`: {args.config}; medians of {args.rounds} rounds, and in brackets the least and the most."
    append(
        "startup.md",
        [
            title(load_before),
            "",
            note,
            "",
            *lines,
            "",
            f"Warm is {ratio:.2f} of cold (the median of the rounds).",
        ],
    )


if __name__ == "__main__":
    main()
