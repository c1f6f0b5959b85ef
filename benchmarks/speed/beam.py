"""Compare `prepare --runner DirectRunner` with plain `prepare`: the stores byte by byte, and cost.

    python benchmarks/speed/beam.py [--copies 1]        (needs the extra `beam`)

The two requests are as for configs/bert_mini.py and configs/t5_mini.py, on the books. Each runs
in processes of this machine, in DirectRunner (one process), and in DirectRunner with separate
worker processes; then all files of the three stores are compared. Seconds are of the whole
command; memory is the peak resident size of the main process and of its largest child. A dated
section is appended to benchmarks/results/beam.md.
"""

import argparse
import datetime
import filecmp
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from prepare import (
    COMMAND,
    ROOT,
    format_command,
    get_processor_name,
    int_at_least,
    link_copies,
    measure_children_cpu,
)  # benchmarks/speed/prepare.py

from benchmarks.results_pages import add_result

REQUESTS = {
    "bert_mini": ["--vocab-size", "8192"],
    "t5_mini": ["--vocab-size", "8192", "--layout", "t5"],
}
DIRECT = ["--runner", "DirectRunner"]


def list_options(cores: int) -> dict[str, list[str]]:
    """Return {label: options of `prepare`}."""
    options = ["direct_running_mode=multi_processing", f"direct_num_workers={cores}"]
    separate = [word for option in options for word in ("--runner-option", option)]
    return {
        f"{cores} processes": ["--workers", str(cores)],
        "DirectRunner": DIRECT,
        f"DirectRunner, {cores} processes": [*DIRECT, *separate],
    }


def run_prepare(
    corpus: pathlib.Path, output: pathlib.Path, options: list[str]
) -> tuple[float, float, list[int]]:
    """Run `prepare` in its own process.

    Returns:
      (wall-clock seconds, CPU seconds, peak KiB of [the main process, its largest child]).
    """
    script = output.parent / "run.py"
    script.write_text(COMMAND)

    argv = [sys.executable, script, corpus, "--output", output, *options]
    start, cpu_start = time.perf_counter(), measure_children_cpu()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment)
    seconds, cpu = time.perf_counter() - start, measure_children_cpu() - cpu_start
    report = json.loads(done.stdout.splitlines()[-1])
    if report["status"]:
        raise SystemExit(f"{' '.join(map(str, argv))}: status {report['status']}\n{done.stderr}")
    return seconds, cpu, report["peaks"]


def list_files(store: pathlib.Path) -> list[pathlib.Path]:
    """Return the relative paths of all files of a store, sorted."""
    return sorted(path.relative_to(store) for path in store.rglob("*") if path.is_file())


def compare_stores(one: pathlib.Path, other: pathlib.Path) -> str:
    """Return how many files and bytes are equal; exit with an error if any differs."""
    if list_files(one) != list_files(other):
        raise SystemExit(f"{one} and {other} have different files")
    differ = [
        str(file)
        for file in list_files(one)
        if not filecmp.cmp(one / file, other / file, shallow=False)
    ]
    if differ:
        raise SystemExit(f"{one} and {other} differ in {', '.join(differ)}")
    size = sum((one / file).stat().st_size for file in list_files(one))
    return f"all {len(list_files(one))} files, {size:,} bytes"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copies", type=int_at_least(1), default=1, help="of each book")
    args = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        corpus = link_copies(pathlib.Path(folder) / "books", args.copies)
        megabytes = sum(path.stat().st_size for path in corpus.rglob("*.jsonl")) / 1e6
        for name, request in REQUESTS.items():
            first = None
            for label, options in list_options(cores).items():
                store = pathlib.Path(folder) / f"{name}-{len(rows)}"
                seconds, cpu, peaks = run_prepare(corpus, store, request + options)
                first = first or store
                same = "" if store is first else compare_stores(first, store)
                main_mib, child_mib = (peak / 1024 for peak in peaks)
                memory = f"{main_mib:.0f} + {child_mib:.0f}"
                rows.append(f"| {name} | {label} | {seconds:.0f} | {cpu:.0f} | {memory} | {same} |")
                print(rows[-1], flush=True)
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("apache-beam", "tensorflow-datasets")
    )
    title = (
        f"{get_processor_name()}, {cores} cores, load {load:.1f} at the start, "
        f"Python {platform.python_version()}, {versions}"
    )
    note = f"`{format_command()}`: {megabytes:.0f} MB of books."
    head = [
        "| request of | run by | seconds | CPU seconds | peak MiB, main + largest child | "
        "equal to the first |",
        "|---" * 6 + "|",
    ]
    add_result("beam", [f"## {datetime.date.today()}, {title}", "", note, "", *head, *rows])


if __name__ == "__main__":
    main()
