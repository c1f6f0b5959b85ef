"""Time `train` from the start of its process to the end of its first step.

    python -m benchmarks.speed.startup [--store runs/builtin] [--config bert_tiny] [--rounds 5]

Each round is a start with an empty compilation cache (cold) and one with a filled cache (warm), in
separate workdirs, with the environment variables of launch.sh. The warm starts share a cache that
a start before the first round has filled. A step has ended when its row is in metrics.jsonl, which
is one step later. The time to the end of the process (one step, a checkpoint, no evaluation) is
reported too. A dated section is appended to benchmarks/results/startup.md.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    format_command,
    format_spread,
    format_title,
    int_at_least,
    report_errors,
)
from benchmarks.results_pages import add_result
from data.store.reader import Store
from pretrain.config import load


def time_start(
    config: str, store: pathlib.Path, cache: pathlib.Path, workdir: pathlib.Path
) -> tuple[float, float]:
    """Return (seconds to the first step's row, seconds to the end of the process)."""
    arguments = [
        "train",
        config,
        "--workdir",
        workdir,
        f"data.store={store}",
        "train.stop_at_step=2",
        "evaluate.every=0",
    ]
    environment = (
        os.environ
        | MALLOC_ENVIRONMENT
        | {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    )
    rows, first, start_time = workdir / "metrics.jsonl", None, time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pretrain", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        output = b""
        while process.poll() is None:
            output += process.stderr.read() or b""
            if first is None and rows.exists() and b"\n" in rows.read_bytes():
                first = time.monotonic() - start_time
            time.sleep(0.005)
        whole = time.monotonic() - start_time
        output += process.stderr.read() or b""
    if process.returncode or first is None:
        raise RuntimeError(
            f"train ended with status {process.returncode}:\n{output.decode(errors='replace')}"
        )
    return first, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--store", type=pathlib.Path, default="runs/builtin")
    parser.add_argument("--config", default="bert_tiny")
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    args = parser.parse_args()
    load_before, store = os.getloadavg()[0], args.store.resolve()
    with report_errors(parser):
        load(args.config, [f"data.store={store}"])
        Store.open(store)
    times: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        time_start(args.config, store, folder / "warm", folder / "fills")
        for i in range(args.rounds):
            times["cold"].append(
                time_start(args.config, store, folder / f"cold{i}", folder / f"a{i}")
            )
            times["warm"].append(time_start(args.config, store, folder / "warm", folder / f"b{i}"))
    lines = ["| cache | to the first step, s | to the end, s |", "|---|---|---|"]
    lines += [
        f"| {name} | {format_spread([first for first, _ in pairs], '.1f')} "
        f"| {format_spread([end for _, end in pairs], '.1f')} |"
        for name, pairs in times.items()
    ]
    ratio = np.median([warm[0] / cold[0] for cold, warm in zip(*times.values(), strict=True)])
    note = (
        f"`{format_command()}`: {args.config}; medians of {args.rounds} rounds and, in brackets, "
        "the minimum and the maximum."
    )
    add_result(
        "startup",
        [
            format_title(load_before),
            "",
            note,
            "",
            *lines,
            "",
            f"Warm takes {ratio:.2f} of the time of cold (the median of the rounds).",
        ],
    )


if __name__ == "__main__":
    main()
