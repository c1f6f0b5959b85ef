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
        seconds, cpu = seconds + time.perf_counter() - began[0], cpu + time.process_time() - began[1]
        tokens += sum(map(len, ids))
    return seconds, cpu, tokens


def ours(corpus: pathlib.Path, scratch: pathlib.Path, *options: str) -> tuple[float, float, int, list[int]]:
    """Seconds by the clock and of CPU time, tokens, peak kilobytes of the main process and of the largest worker."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        script = pathlib.Path(folder) / "run.py"
        script.write_text(COMMAND)
        command = [sys.executable, script, corpus, "--output", f"{folder}/store", *options]
        began, used = time.perf_counter(), children()
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=8)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    rows, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        scratch = pathlib.Path(folder)
        for count in (1, args.copies):
            corpus = copies(scratch / f"books{count}", count)
            megabytes = sum(path.stat().st_size for path in corpus.rglob("*.jsonl")) / 1e6
            walls, cpus, peaks = {"bare": [], "ours": []}, {"bare": [], "ours": []}, []
            for _ in range(args.rounds):
                seconds, cpu, tokens = bare(processor, corpus, cores)
                walls["bare"].append(tokens / seconds / 1e6)
                cpus["bare"].append(tokens / cpu)
                seconds, cpu, tokens, peak = ours(corpus, scratch, "--vocabulary", str(MODEL))
                walls["ours"].append(tokens / seconds / 1e6)
                cpus["ours"].append(tokens / cpu)
                peaks.append(peak)
            trained = ours(corpus, scratch, "--vocab-size", "8192")[3]
            fast, cheap = ({name: max(values) for name, values in kind.items()} for kind in (walls, cpus))
            largest = [max(values) / 1024 for values in zip(*peaks)]
            rows.append(
                f"| {count}x, {megabytes:.0f} MB | {fast['bare']:.2f} | {fast['ours']:.2f} "
                f"| {fast['ours'] / fast['bare']:.2f} | {cheap['ours'] / cheap['bare']:.2f} "
                f"| {largest[0]:.0f} + {cores} x {largest[1]:.0f} "
                f"| {trained[0] / 1024:.0f} + {cores} x {trained[1] / 1024:.0f} |"
            )
            print(rows[-1], flush=True)
    machine = f"{processor_name()}, {cores} cores, load {load:.1f} at the start, Python {platform.python_version()}"
    columns = ["books", "bare, M tokens/s", "prepare, M tokens/s", "ratio", "ratio by CPU time"]
    columns += ["peak MiB, given vocabulary", "peak MiB, training one"]
    title, head = f"## {datetime.date.today()}, {machine}", f"| {' | '.join(columns)} |"
    results = ROOT / "benchmarks" / "results" / "prepare.md"
    results.parent.mkdir(exist_ok=True)
    with results.open("a") as file:
        note = f"`python benchmarks/prepare.py --rounds {args.rounds} --copies {args.copies}`; best of the rounds."
        file.write("\n".join([title, "", note, "", head, "|---" * 7 + "|", *rows, "", ""]))


if __name__ == "__main__":
    main()
