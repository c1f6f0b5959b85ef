"""Measure the rows, reads and memory of each process of a run, and the wait of a step for input.

    python benchmarks/speed/hosts.py memory --store runs/books [--tokens 100000000] [--steps 10]
    python benchmarks/speed/hosts.py input --store runs/books [--steps 10]

`memory` uses two stores: a prepared one, and a synthetic one of `--tokens` tokens (made by
`benchmarks.speed.input`), which shows the growth with the size of the store. It trains a small BERT
on each for `--steps` steps of 64 rows of 128, with 1, 2 and 4 processes on one machine, started by
`pretrain.cli.local`, and a data axis of 4. After the last step each process reports the following;
two numbers are the minimum and the maximum over the processes:

- rows a step: counted where batches are built (`Stream.build_batch`, including those built ahead),
  divided by the number of batches;
- tokens a step: positions read from the memory-mapped store, counted in
  `data.rows.tables.TokenReader`;
- pages: distinct 4-KiB pages among those positions, as bytes;
- map: resident memory of the store's files in this process (Rss in /proc/self/smaps). The kernel
  maps up to 16 pages around each fault;
- anonymous: RssAnon in /proc/self/status, the memory of the process alone: Python, TensorFlow,
  JAX, the model, and the row tables.

`input` trains BERT-base with 8 rows a step for `--steps` + 2 steps through launch.sh and reports
the wait for input in the run's metrics. Without launch.sh's settings of glibc the kernel reclaims
a step's memory at its end: then every thread that needs a page waits, the one that fetches the
input for 175 ms.

A dated section is appended to benchmarks/results/hosts.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.results_pages import add_result  # noqa: E402

if TYPE_CHECKING:
    from data.store.reader import Store

ROWS = 64  # rows of a step of the small model
SMALL = [
    *("model.vocab=30592", "model.width=128", "model.depth=2", "model.num_heads=2"),
    *("model.mlp=512", "model.length=128", f"data.batch_size={ROWS}", "evaluate.every=0"),
    *("checkpoint.every=1000000", "train.stop_at_step=0", "mesh.data=4"),
]
OBJECTIVES = {  # name: arguments of `train`
    "masked words": ["bert_tiny", "data.objective.length=128", "data.objective.max_predictions=38"],
    "sentence pairs": ["bert_base", "train.compute_dtype=float32"],
}


# ---- in each process ---------------------------------------------------------


def run_worker(report: str, arguments: list[str]) -> int:
    """Run a verb and count; after the last step {name: number} is written to `report`.<process>."""
    import jax

    from data.pipeline import Stream
    from data.rows.tables import TokenReader
    from pretrain.__main__ import main
    from pretrain.training import phase_programs

    count = {"batches": 0, "rows": 0, "tokens": 0}
    pages, folder = set(), []
    build, read, feed = Stream.build_batch, TokenReader.__call__, phase_programs.prefetch_to_devices

    def build_counted_batch(
        stream: Stream, step: int, lo: int = 0, hi: int | None = None, number: int = 1
    ) -> Any:
        tokens: Any = stream.split.tokens
        folder[:] = [str(tokens.filename)]
        count["batches"] += number
        count["rows"] += number * ((stream.data.batch_size if hi is None else hi) - lo)
        return build(stream, step, lo, hi, number)

    def read_counted(reader: TokenReader, index_BN: np.ndarray) -> Any:
        count["tokens"] += index_BN.size
        pages.update(np.unique(index_BN * reader.tokens.itemsize // 4096).tolist())
        return read(reader, index_BN)

    def feed_and_report(*args: Any) -> Iterator[Any]:
        yield from feed(*args)
        facts = {
            "process": jax.process_index(),
            **count,
            "pages": len(pages) * 4096,
            **measure_memory(pathlib.Path(folder[0]).parent),
        }
        pathlib.Path(f"{report}.{jax.process_index()}").write_text(json.dumps(facts))

    # The counting versions have narrower types than the methods that they replace.
    Stream.build_batch = build_counted_batch  # pyright: ignore[reportAttributeAccessIssue]
    TokenReader.__call__ = read_counted  # pyright: ignore[reportAttributeAccessIssue]
    phase_programs.prefetch_to_devices = feed_and_report
    return main(arguments)


def measure_memory(folder: pathlib.Path) -> dict[str, int]:
    """Return resident bytes: {map: of the files in `folder`, anonymous: of this process alone}."""
    mapped, inside = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = str(folder) in line
            elif inside and line.startswith("Rss:"):
                mapped += int(line.split()[1]) * 1024
    with open("/proc/self/status") as status:
        anonymous = next(line for line in status if line.startswith("RssAnon:"))
    return {"map": mapped, "anonymous": int(anonymous.split()[1]) * 1024}


# ---- for all processes -------------------------------------------------------


def run_processes(
    count: int, arguments: Sequence[str], report: pathlib.Path
) -> list[dict[str, Any]]:
    """Run a verb in `count` processes and return the report of each."""
    from pretrain.cli import local

    make_command = local.build_command
    local.build_command = lambda *args: (
        make_command(*args)
        | {"args": [sys.executable, __file__, "--worker", str(report), *arguments]}
    )
    try:
        if code := local.run_processes(count, 4 // count, arguments).exit_code:
            raise SystemExit(code)
    finally:
        local.build_command = make_command
    return [json.loads(pathlib.Path(f"{report}.{i}").read_text()) for i in range(count)]


def format_range(values: Sequence[float], number_format: str) -> str:
    """Return the number on which the processes agree, or the minimum and the maximum."""
    low, high = format(min(values), number_format), format(max(values), number_format)
    return low if low == high else f"{low} to {high}"


def format_table(stores: Sequence[Store], steps: int, folder: pathlib.Path) -> Iterator[str]:
    """Yield the lines of the table: one for each number of processes."""
    columns = [
        "objective",
        "store, MiB",
        "processes",
        "rows a step",
        "tokens a step",
        "pages, MiB",
        "map, MiB",
        "anonymous, MiB",
    ]
    yield from (f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")
    for objective, arguments in OBJECTIVES.items():
        for store in stores:
            size = sum(file.stat().st_size for file in (store.folder / "train").glob("*.bin"))
            for count in (1, 2, 4):
                workdir = folder / "run"
                train_arguments = [
                    "train",
                    *arguments,
                    *SMALL,
                    f"data.store={store.path}",
                    f"train.steps={steps}",
                    "--workdir",
                    str(workdir),
                ]
                facts = run_processes(count, train_arguments, folder / "facts")
                cells = [objective, f"{size / 2**20:,.0f}", str(count)]
                cells += [
                    format_range([fact[name] / fact["batches"] for fact in facts], "g")
                    for name in ("rows", "tokens")
                ]
                cells += [
                    format_range([fact[name] / 2**20 for fact in facts], form)
                    for name, form in (("pages", ".1f"), ("map", ".1f"), ("anonymous", ",.0f"))
                ]
                yield f"| {' | '.join(cells)} |"
                shutil.rmtree(workdir)


def measure_input_wait(store: Store, steps: int, folder: pathlib.Path) -> str:
    """Return a sentence on how long steps of BERT-base waited for their input."""
    from pretrain.workdir import metrics_file

    workdir = folder / "base"
    arguments = [
        "train",
        "bert_base",
        f"data.store={store.path}",
        "data.batch_size=8",
        "evaluate.every=0",
        "train.steps=1000000",
    ]
    arguments += [
        f"train.stop_at_step={steps + 2}",
        "checkpoint.every=1000000",
        "--workdir",
        str(workdir),
    ]
    subprocess.run([ROOT / "launch.sh", *arguments], cwd=ROOT, check=True)
    # The first step compiles, the second waits for it.
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")[2:]
    seconds, input_seconds = (
        np.array([row[name] for row in rows]) for name in ("seconds", "input_seconds")
    )
    return (
        f"`bert_base data.batch_size=8`, one process, {len(rows)} steps after the first two: "
        f"{np.median(seconds):.2f} s a step (median), of which "
        f"{input_seconds.mean() * 1000:.2f} ms waiting for input "
        f"(mean; longest {input_seconds.max() * 1000:.2f} ms): "
        f"{input_seconds.sum() / seconds.sum():.3%}."
    )


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        return run_worker(sys.argv[2], sys.argv[3:])
    from benchmarks.harness import (
        format_command,
        format_title,
        int_at_least,
        report_errors,
    )
    from benchmarks.speed.input import make_stores
    from data.store.reader import Store

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("memory", "input"))
    parser.add_argument("--store", required=True)
    parser.add_argument("--tokens", type=int_at_least(100_000), default=100_000_000)
    parser.add_argument("--steps", type=int_at_least(1), default=10)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with report_errors(parser):
        store = Store.open(pathlib.Path(args.store).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.part == "memory":
            lines = list(
                format_table([store, make_stores(folder, args.tokens)["bert"]], args.steps, folder)
            )
        else:
            lines = [measure_input_wait(store, args.steps, folder)]
    add_result(
        "hosts",
        [format_title(load), "", f"`{format_command()}`: {args.steps} steps", "", *lines],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
