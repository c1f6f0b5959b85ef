"""Measure how fast `prepare` finds copies and near copies, beside datatrove and datasketch.

    python -m benchmarks.speed.cleaning --corpora CORPORA [--megabytes 2] [--rounds 3]

The text is of CORPORA/books, cut into documents of about 2,000 characters, of which every tenth
comes a second time with one word changed. All programs read the same JSON lines in one process. The
figures are CPU seconds without imports, because other work on the machine disturbs these least;
the programs take turns, and medians are reported. Ours is the scan that `prepare` adds: reading,
hashing, comparing, and writing which documents are dropped. The peers are in an environment of
their own (benchmarks/speed/cleaning_peer.py). A dated section is added to
benchmarks/results/cleaning.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np

from benchmarks.harness import ROOT, format_command, format_title, int_at_least, require_paths
from benchmarks.peer_environment import find_peers_python
from benchmarks.results_pages import add_result
from data.cleaning.settings import CleaningSettings
from data.corpus import sources
from data.prepare.cleaning_pass import CleaningPass
from data.prepare.local_pool import LocalPool

PEER = ROOT / "benchmarks" / "speed" / "cleaning_peer.py"
PACKAGES = ("datatrove[processing,io]==0.10.1", "datasketch==2.0.0", "spacy", "regex", "numpy")
DOCUMENT = 2_000  # characters
OURS = {"`--drop-duplicates exact`": "exact", "`--drop-duplicates near`": "near"}


def write_documents(books: pathlib.Path, folder: pathlib.Path, size: int) -> tuple[int, int]:
    """Write documents of so many bytes of text; return their bytes and their number."""
    written, lines = 0, []
    for path in sorted(books.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            text = json.loads(line)["text"]
            for i in range(0, len(text) - DOCUMENT, DOCUMENT):
                part = text[i : i + DOCUMENT]
                parts = [part, part.replace(" the ", " a ", 1)] if len(lines) % 11 == 0 else [part]
                lines += parts
                written += sum(len(one.encode()) for one in parts)
                if written >= size:
                    records = (json.dumps({"text": one}) + "\n" for one in lines)
                    (folder / "documents.jsonl").write_text("".join(records))
                    return written, len(lines)
    raise SystemExit(f"{books} has only {written:,} bytes")


def measure_scan(folder: pathlib.Path, scratch: pathlib.Path, kind: str) -> tuple[float, int]:
    """Return the CPU seconds of the scan, and the number of documents that it drops."""
    scratch.mkdir()
    source = sources.resolve_source(str(folder))
    with LocalPool(0, scratch) as pool:
        jobs = [(0, (chunk,)) for chunk in sources.split_source(source, 4 << 20, scratch)]
        settings = CleaningSettings(drop_duplicates=kind)
        start = time.process_time()
        cleaning = CleaningPass(settings, scratch / "cleaning", scratch / "columns", 1)
        cleaning.prepare_drops(pool, jobs, source.size, [0])
        seconds = time.process_time() - start
    found = [np.load(path) for path in (scratch / "cleaning" / "drops").glob("*.npy")]
    return seconds, sum(map(len, found))


def measure_peer(
    python: pathlib.Path, program: str, folder: pathlib.Path, scratch: pathlib.Path
) -> tuple[float, int]:
    """Return the CPU seconds of a peer, and the number of documents that stay."""
    scratch.mkdir()
    words = [python, PEER, program, folder, scratch]
    done = subprocess.run(
        words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return found["cpu"], found["documents"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int_at_least(1), default=2)
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    python, load = find_peers_python(PACKAGES, "cleaning"), os.getloadavg()[0]
    results: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        (scratch / "texts").mkdir()
        size, count = write_documents(books, scratch / "texts", args.megabytes * 10**6)
        for number in range(args.rounds):
            for label, kind in OURS.items():
                seconds, dropped = measure_scan(
                    scratch / "texts", scratch / f"{kind}{number}", kind
                )
                results.setdefault(label, []).append((seconds, dropped))
            for program in ("datatrove", "datasketch"):
                place = scratch / f"{program}{number}"
                seconds, remaining = measure_peer(python, program, scratch / "texts", place)
                label = f"{program} {'0.10.1' if program == 'datatrove' else '2.0.0'}"
                results.setdefault(label, []).append((seconds, count - remaining))
    rows = []
    for label, measured in results.items():
        seconds = statistics.median(one[0] for one in measured)
        cells = (
            f"{size / 1e6 / seconds:.2f}",
            f"{seconds / count * 1e6:,.0f}",
            str(measured[0][1]),
        )
        rows.append(f"| {label} | {' | '.join(cells)} |")
    note = (
        f"`{format_command()}`: {size / 1e6:.1f} MB in {count:,} documents; medians of "
        f"{args.rounds} rounds that take turns."
    )
    columns = ["program", "MB per CPU second", "microseconds a document", "documents dropped"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows]
    add_result("cleaning", [format_title(load), "", note, "", *table], "Finding copies in a corpus")


if __name__ == "__main__":
    main()
