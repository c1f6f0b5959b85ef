"""Measure the speed and the memory of `prepare`, and the speed of bare SentencePiece.

    python benchmarks/speed/prepare.py [--rounds 3] [--copies 8]

Bare: `SentencePieceProcessor.encode(documents, num_threads=cores)` on documents in memory; reading
them is not timed. Prepare: the whole command, from the start of the process to the finished store:
start, reading, JSON, sentence boundaries, encoding, writing, checksums, fsync. The two take turns,
and the best of the rounds is reported. Both encode with T5's released vocabulary. The second ratio
is of tokens per CPU second, which other work on the machine disturbs less than wall-clock time.
Memory is the peak resident size of the main process and of a worker. A dated section is appended
to benchmarks/results/prepare.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness import format_command, get_processor_name, int_at_least  # noqa: E402
from benchmarks.results_pages import add_result  # noqa: E402

CORPORA = ROOT.parent / "shared" / "corpora"
BOOKS = CORPORA / "books" / "train"
MODEL = CORPORA / "vocab_t5" / "t5_spiece.model"

# The peaks are VmHWM of each process, not ru_maxrss, which begins with the parent's: a child
# has the parent's memory until it becomes another program.
COMMAND = """
import json, pathlib, sys, threading, time
start = time.monotonic()
from pretrain.__main__ import main

def read_peak(pid):
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return max((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), default=0)

def watch_workers(found):
    while True:
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                children = (task / "children").read_text().split()
            except OSError:  # the thread has ended
                continue
            found[:] = [max(found + [read_peak(pid) for pid in children])]
        time.sleep(0.05)

if __name__ == "__main__":
    workers = [0]
    threading.Thread(target=watch_workers, args=(workers,), daemon=True).start()
    status = main(["prepare", *sys.argv[1:]])
    peaks = [read_peak("self"), *workers]
    print(json.dumps({"status": status, "seconds": time.monotonic() - start, "peaks": peaks}))
"""


def link_copies(folder: pathlib.Path, count: int) -> pathlib.Path:
    """Link every book `count` times into `folder` and return the folder."""
    for i in range(count):
        (folder / str(i)).mkdir(parents=True)
        for book in sorted(BOOKS.glob("*.jsonl")):
            (folder / str(i) / book.name).symlink_to(book)
    return folder


def measure_sentencepiece(
    processor: sentencepiece.SentencePieceProcessor, corpus: pathlib.Path, cores: int
) -> tuple[float, float, int]:
    """Encode all documents, file by file; return (wall-clock seconds, CPU seconds, tokens)."""
    seconds = cpu = 0.0
    tokens = 0
    for file in sorted(corpus.rglob("*.jsonl")):
        documents = [json.loads(line)["text"] for line in file.read_text().splitlines()]
        start, cpu_start = time.perf_counter(), time.process_time()
        ids = processor.encode(documents, num_threads=cores)
        seconds += time.perf_counter() - start
        cpu += time.process_time() - cpu_start
        tokens += sum(map(len, ids))
    return seconds, cpu, tokens


def measure_prepare(
    corpus: pathlib.Path, scratch: pathlib.Path, *options: str
) -> tuple[float, float, int, list[int]]:
    """Run `prepare` in its own process.

    Returns:
      (wall-clock seconds, CPU seconds, tokens, peak KiB of [the main process, its largest worker]).
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        script = pathlib.Path(folder) / "run.py"
        script.write_text(COMMAND)
        argv = [sys.executable, script, corpus, "--output", f"{folder}/store", *options]
        start, cpu_start = time.perf_counter(), measure_children_cpu()
        done = subprocess.run(
            argv,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        seconds, cpu = time.perf_counter() - start, measure_children_cpu() - cpu_start
        report = json.loads(done.stdout.splitlines()[-1])
        if report["status"]:
            raise SystemExit(f"prepare ended with status {report['status']}")
        manifest = json.loads((pathlib.Path(folder) / "store" / "manifest.json").read_text())
        return seconds, cpu, manifest["totals"]["tokens"], report["peaks"]


def measure_children_cpu() -> float:
    """Return the CPU seconds of all descendant processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_corpus(
    corpus: pathlib.Path, scratch: pathlib.Path, rounds: int, cores: int
) -> dict[str, Any]:
    """Measure both programs on a corpus.

    Returns:
      {tokens; bare, ours: best wall-clock seconds; bare_cpu, ours_cpu: best CPU seconds; given,
      trained: peak MiB of [the main process, its largest worker] with a given vocabulary and while
      training one}.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    times, peaks, tokens = [], [], 0
    for _ in range(rounds):
        wall, cpu, tokens = measure_sentencepiece(processor, corpus, cores)
        our_wall, our_cpu, _, peak = measure_prepare(corpus, scratch, "--vocabulary", str(MODEL))
        times.append((wall, our_wall, cpu, our_cpu))
        peaks.append(peak)
    given = [max(values) / 1024 for values in zip(*peaks)]
    trained = [
        value / 1024 for value in measure_prepare(corpus, scratch, "--vocab-size", "8192")[3]
    ]
    names = ("bare", "ours", "bare_cpu", "ours_cpu")
    return {"tokens": tokens, "given": given, "trained": trained} | dict(
        zip(names, map(min, zip(*times)))
    )


def format_row(label: str, measured: dict[str, Any], cores: int) -> str:
    """Return a line of the table.

    Args:
      measured: the result of `measure_corpus`.
    """
    rates = [measured["tokens"] / measured[name] / 1e6 for name in ("bare", "ours")]
    ratios = [measured["bare"] / measured["ours"], measured["bare_cpu"] / measured["ours_cpu"]]
    peaks = [
        f"{main:.0f} + {cores} x {worker:.0f}"
        for main, worker in (measured["given"], measured["trained"])
    ]
    return f"| {' | '.join([label, *(f'{value:.2f}' for value in rates + ratios), *peaks])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    parser.add_argument("--copies", type=int_at_least(2), default=8)
    args = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    results, rows = [], []
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        for count in (1, args.copies):
            corpus = link_copies(pathlib.Path(folder) / f"books{count}", count)
            megabytes = sum(path.stat().st_size for path in corpus.rglob("*.jsonl")) / 1e6
            results.append(measure_corpus(corpus, pathlib.Path(folder), args.rounds, cores))
            rows.append(format_row(f"{count}x, {megabytes:.0f} MB", results[-1], cores))
            print(rows[-1], flush=True)
    first, second = results
    more = {key: second[key] - first[key] for key in ("tokens", "bare", "ours")}
    steady = (
        "Without the start-up (the difference of the rows): "
        f"{more['tokens'] / more['ours'] / 1e6:.2f} M tokens/s, "
        f"{more['bare'] / more['ours']:.2f} of bare."
    )
    machine = (
        f"{get_processor_name()}, {cores} cores, load {load:.1f} at the start, "
        f"Python {platform.python_version()}"
    )
    columns = ["books", "bare, M tokens/s", "prepare, M tokens/s", "ratio", "ratio by CPU time"]
    columns += ["peak MiB, given vocabulary", "peak MiB, training one"]
    copies = f"{args.copies} copies in the last row"
    note = f"`{format_command()}`; the best of {args.rounds} rounds; {copies}."
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows]
    heading = f"## {datetime.date.today()}, {machine}"
    add_result("prepare", [heading, "", note, "", *table, "", steady])


if __name__ == "__main__":
    main()
