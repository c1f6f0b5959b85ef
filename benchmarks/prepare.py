"""How fast `prepare` turns text into a token store, beside bare SentencePiece, and how much memory it takes.

    python benchmarks/prepare.py [--rounds 3] [--copies 8]

Bare: `SentencePieceProcessor.encode(documents, num_threads=cores)` on documents that are in memory already, read
outside the clock. Ours: the whole command, from the start of the process to the finished store: start, reading, JSON,
sentence boundaries, encoding, writing, checksums, fsync. The runs take turns, and the best of each counts. Both encode
with T5's released vocabulary. The second ratio is of tokens per second of CPU time, which other work on the machine
disturbs less than the clock. Memory is the largest resident size of the main process and of a worker, over the run.
A dated section is appended to benchmarks/results/prepare.md.
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

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.harness import at_least, command  # noqa: E402

CORPORA = ROOT.parent / "shared" / "corpora"
BOOKS = CORPORA / "books" / "train"
MODEL = CORPORA / "vocab_t5" / "t5_spiece.model"

COMMAND = """
import json, resource, sys, time
began = time.monotonic()
from pretrain.__main__ import main
if __name__ == "__main__":
    status = main(["prepare", *sys.argv[1:]])
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"status": status, "seconds": time.monotonic() - began, "peaks": peaks}))
"""


def copies(folder: pathlib.Path, count: int) -> pathlib.Path:
    """A folder in which every book appears `count` times."""
    for i in range(count):
        (folder / str(i)).mkdir(parents=True)
        for book in sorted(BOOKS.glob("*.jsonl")):
            (folder / str(i) / book.name).symlink_to(book)
    return folder


def bare(processor, corpus: pathlib.Path, cores: int) -> tuple[float, float, int]:
    """Seconds by the clock, seconds of CPU time, and tokens, of encoding all documents, a file at a time."""
    seconds = cpu = tokens = 0
    for file in sorted(corpus.rglob("*.jsonl")):
        documents = [json.loads(line)["text"] for line in file.read_text().splitlines()]
        began = time.perf_counter(), time.process_time()
        ids = processor.encode(documents, num_threads=cores)
        seconds, cpu = (
            seconds + time.perf_counter() - began[0],
            cpu + time.process_time() - began[1],
        )
        tokens += sum(map(len, ids))
    return seconds, cpu, tokens


def ours(
    corpus: pathlib.Path, scratch: pathlib.Path, *options: str
) -> tuple[float, float, int, list[int]]:
    """Seconds by the clock and of CPU time, tokens, peak kilobytes of the main process and of the largest worker."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        script = pathlib.Path(folder) / "run.py"
        script.write_text(COMMAND)
        words = [sys.executable, script, corpus, "--output", f"{folder}/store", *options]
        began, used = time.perf_counter(), children()
        done = subprocess.run(
            words,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        seconds, cpu = time.perf_counter() - began, children() - used
        report = json.loads(done.stdout.splitlines()[-1])
        if report["status"]:
            raise SystemExit(f"prepare ended with status {report['status']}")
        manifest = json.loads((pathlib.Path(folder) / "store" / "manifest.json").read_text())
        return seconds, cpu, manifest["totals"]["tokens"], report["peaks"]


def children() -> float:
    """Seconds of CPU time that processes started here, and theirs, took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def processor_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def measure(corpus: pathlib.Path, scratch: pathlib.Path, rounds: int, cores: int) -> dict:
    """Tokens; best seconds by clock and of CPU time, bare and ours; peak MiB, with a given and a trained vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    times, peaks, tokens = [], [], 0
    for _ in range(rounds):
        wall, cpu, tokens = bare(processor, corpus, cores)
        our_wall, our_cpu, _, peak = ours(corpus, scratch, "--vocabulary", str(MODEL))
        times.append((wall, our_wall, cpu, our_cpu))
        peaks.append(peak)
    given = [max(values) / 1024 for values in zip(*peaks)]
    trained = [value / 1024 for value in ours(corpus, scratch, "--vocab-size", "8192")[3]]
    names = ("bare", "ours", "bare_cpu", "ours_cpu")
    return {"tokens": tokens, "given": given, "trained": trained} | dict(
        zip(names, map(min, zip(*times)))
    )


def row(label: str, seen: dict, cores: int) -> str:
    """A line of the table."""
    rates = [seen["tokens"] / seen[name] / 1e6 for name in ("bare", "ours")]
    ratios = [seen["bare"] / seen["ours"], seen["bare_cpu"] / seen["ours_cpu"]]
    peaks = [
        f"{main:.0f} + {cores} x {worker:.0f}" for main, worker in (seen["given"], seen["trained"])
    ]
    return f"| {' | '.join([label, *(f'{value:.2f}' for value in rates + ratios), *peaks])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--copies", type=at_least(2), default=8)
    args = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    seen, rows = [], []
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        for count in (1, args.copies):
            corpus = copies(pathlib.Path(folder) / f"books{count}", count)
            megabytes = sum(path.stat().st_size for path in corpus.rglob("*.jsonl")) / 1e6
            seen.append(measure(corpus, pathlib.Path(folder), args.rounds, cores))
            rows.append(row(f"{count}x, {megabytes:.0f} MB", seen[-1], cores))
            print(rows[-1], flush=True)
    more = {key: seen[1][key] - seen[0][key] for key in ("tokens", "bare", "ours")}
    steady = (
        f"Once started (the difference of the rows): {more['tokens'] / more['ours'] / 1e6:.2f} M tokens/s, "
        f"{more['bare'] / more['ours']:.2f} of bare."
    )
    machine = f"{processor_name()}, {cores} cores, load {load:.1f} at the start, Python {platform.python_version()}"
    columns = ["books", "bare, M tokens/s", "prepare, M tokens/s", "ratio", "ratio by CPU time"]
    columns += ["peak MiB, given vocabulary", "peak MiB, training one"]
    note = f"`{command()}`; the best of {args.rounds} rounds; {args.copies} copies in the last row."
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows]
    with (ROOT / "benchmarks" / "results" / "prepare.md").open("a") as file:
        file.write(
            "\n".join(
                [f"## {datetime.date.today()}, {machine}", "", note, "", *table, "", steady, "", ""]
            )
        )


if __name__ == "__main__":
    main()
