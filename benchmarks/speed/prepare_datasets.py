"""Measure `prepare` beside `datasets.map` with the same vocabulary, on Parquet.

    python -m benchmarks.speed.prepare_datasets --corpora CORPORA [--copies 24] [--rounds 2]

The books, several times over, in Parquet files of 50 MB. `datasets.map` reads them with
`load_dataset`, encodes in batches of 1,000 rows with as many processes as cores, and keeps the
tokens alone. Both programs are timed from their start to their end, in turns; bytes are of all that
they leave on the disk, memory is the sum of the peaks of their processes. The first step is
t5_mini's on the store, with the start of its process and its compilation.

The peer runs on CLOZE_PEERS_PYTHON, or in an environment that is made at the first call
(benchmarks/speed/prepare_datasets_peer.py).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import pyarrow
import pyarrow.parquet

from benchmarks.harness import (
    ROOT,
    format_command,
    format_title,
    int_at_least,
    require_paths,
)
from benchmarks.peer_environment import find_peers_python
from benchmarks.results_pages import add_result
from benchmarks.speed.prepare import measure_children_cpu

NAME = "prepare_datasets"
FILE_BYTES = 50_000_000  # of text in a file
PACKAGES = ("datasets>=5.2,<6", "transformers>=5.0,<6", "sentencepiece", "protobuf")
PEER = ROOT / "benchmarks" / "speed" / "prepare_datasets_peer.py"


class ProgramCost(NamedTuple):
    """What a program took: seconds, CPU seconds, and MiB of memory at most and of its files."""

    seconds: float
    cpu: float
    memory: float
    disk: float


def write_parquet(books: pathlib.Path, folder: pathlib.Path, copies: int) -> int:
    """Write the books so many times into Parquet files; return the bytes of their text."""
    texts = [
        json.loads(line)["text"]
        for path in sorted(books.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    group, size, total, number = [], 0, 0, 0
    for copy in range(copies):
        for text in texts:
            group.append(f"{copy} {text}")  # no two documents are equal
            size += len(group[-1].encode())
            if size > FILE_BYTES:
                write_group(group, folder, number)
                group, total, size, number = [], total + size, 0, number + 1
    if group:
        write_group(group, folder, number)
    return total + size


def write_group(texts: list[str], folder: pathlib.Path, number: int) -> None:
    """Write one file with row groups of 500 texts."""
    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(table, folder / f"part-{number:03}.parquet", row_group_size=500)


def measure_program(
    argv: list[object], left: pathlib.Path, environment: dict[str, str]
) -> ProgramCost:
    """Run a program and return what it took; `left` is the folder of its files."""
    start, cpu_start = time.perf_counter(), measure_children_cpu()
    process = subprocess.Popen(
        [str(word) for word in argv],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.DEVNULL,
    )
    peaks: dict[int, float] = {}
    while process.poll() is None:
        for pid in list_tree(process.pid):
            peaks[pid] = max(peaks.get(pid, 0.0), read_peak(pid))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{argv[0]} ended with status {process.returncode}")
    seconds, cpu = time.perf_counter() - start, measure_children_cpu() - cpu_start
    disk = sum(path.stat().st_size for path in left.rglob("*") if path.is_file())
    return ProgramCost(seconds, cpu, sum(peaks.values()), disk / 2**20)


def list_tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    try:
        tasks = [*pathlib.Path(f"/proc/{pid}/task").iterdir()]
        children = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return [pid]
    return [pid, *(one for child in children for one in list_tree(child))]


def read_peak(pid: int) -> float:
    """Return the peak memory of a process in MiB of its own; 0 if it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return sizes.get("RssAnon", 0) / 1024


def measure_first_step(store: pathlib.Path, folder: pathlib.Path, vocab: int) -> float:
    """Return the seconds from the start of `train` to the end of its only step."""
    words = [
        *("train", "t5_mini", "--workdir", folder, f"data.store={store}", "train.stop_at_step=1"),
        *(f"model.vocab={vocab}", "evaluate.every=0"),
    ]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pretrain", *map(str, words)], cwd=ROOT, check=True)
    return time.perf_counter() - start


def format_row(name: str, costs: list[ProgramCost], size: int) -> str:
    """Return a line of the table: the medians of the rounds."""
    cost = ProgramCost(*map(statistics.median, zip(*costs)))
    cells = [
        *(name, f"{cost.seconds:.1f}", f"{size / 1e6 / cost.seconds:.1f}", f"{cost.cpu:.1f}"),
        *(f"{cost.memory:,.0f}", f"{cost.disk:,.0f}"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True)
    parser.add_argument("--copies", type=int_at_least(1), default=24)
    parser.add_argument("--rounds", type=int_at_least(1), default=2)
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    model = args.corpora / "vocab_t5" / "t5_spiece.model"
    require_paths(parser, "--corpora", books, model)
    python, load = find_peers_python(PACKAGES, "datasets"), os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    costs: dict[str, list[ProgramCost]] = {"`prepare`": [], "`datasets.map`": []}
    steps = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "parquet").mkdir()
        size = write_parquet(books, folder / "parquet", args.copies)
        for number in range(args.rounds):
            ours, peer = folder / f"ours_{number}", folder / f"peer_{number}"
            prepare = [sys.executable, "-m", "pretrain", "prepare", folder / "parquet"]
            prepare += ["--vocabulary", model, "--output", ours]
            costs["`prepare`"].append(measure_program(prepare, ours, {}))
            steps.append(measure_first_step(ours, folder / f"run_{number}", 32_128))
            words = [python, PEER, folder / "parquet", model, peer, cores]
            own = {"HF_HOME": str(peer), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
            costs["`datasets.map`"].append(measure_program(words, peer, own))
    rows = [format_row(name, measured, size) for name, measured in costs.items()]
    ours, peer = (
        ProgramCost(*map(statistics.median, zip(*measured))) for measured in costs.values()
    )
    note = (
        f"`{format_command()}`: {size / 1e9:.2f} GB of text, {cores} processes each; medians of "
        f"{args.rounds} rounds. `prepare` is {peer.seconds / ours.seconds:.1f} times as fast, "
        f"{peer.cpu / ours.cpu:.1f} by CPU time. `train t5_mini` has made its first step "
        f"{statistics.median(steps):.1f} s after its start."
    )
    columns = ["program", "seconds", "MB/s", "CPU seconds", "memory, MiB", "left on disk, MiB"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows]
    print("\n".join([note, *table]))
    add_result(NAME, [format_title(load), "", note, "", *table], "`prepare` beside `datasets.map`")


if __name__ == "__main__":
    main()
