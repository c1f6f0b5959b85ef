"""Run the reliability board: all injected faults, with their figures.

    python -m benchmarks.reliability [--row 3 --row 15]

Runs the tests of `board_rows.ROWS`, one process a row, with CLOZE_BOARD=whole (the suite tries only
a few of each fault), records the results in benchmarks/results/reliability/board.json and writes
benchmarks/results/reliability.md. A row with a failed test is written as failed, a row without
tests as open. A row that does not run keeps its line with its date.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Mapping, Sequence
from typing import TypedDict

from benchmarks.harness import RESULTS as RESULTS_FOLDER
from benchmarks.harness import ROOT
from benchmarks.reliability.board_rows import ROWS
from data.store.atomic import write_atomically

BOARD = RESULTS_FOLDER / "reliability.md"
RESULTS = RESULTS_FOLDER / "reliability" / "board.json"
FIRST_RESULTS = RESULTS_FOLDER / "reliability" / "board_0.1.0.json"

NOT_SHOWN = """## What cannot be shown on a CPU

Hangs of the interconnect between chips, corruption of data inside a TPU or GPU, and the
permissions and failures of a real bucket. None of them is tested on this page.
"""
# {row: (date of the result, a sentence about its figures)}; a later run of the row has none.
NOTES = {
    31: (
        "2026-11-25",
        '2026-11-28: the figures of row 31 of 2026-11-25 that are named "most" are sums over '
        "its folders.",
    )
}


class Result(TypedDict):
    """What the last run of a row gave."""

    verdict: str
    figures: str
    date: str


def run_tests(tests: Sequence[str]) -> tuple[str, str]:
    """Run the tests of one row in their own process and return (verdict, figures).

    The figures are properties that the tests record.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        argv = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--timeout=1800",
            f"--junitxml={report}",
            "-o",
            "junit_family=xunit1",
            *tests,
        ]
        start = time.monotonic()
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env=os.environ | {"CLOZE_BOARD": "whole"},
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - start
        if not report.exists():
            raise RuntimeError(f"{' '.join(tests)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = xml.etree.ElementTree.parse(report).getroot().findall(".//testcase")
    if done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    return summarize_cases(cases, seconds)


def is_maximum(name: str) -> bool:
    """Return whether a figure of this name is a maximum; others are sums."""
    return name.split()[0] == "most"


def summarize_cases(
    cases: Sequence[xml.etree.ElementTree.Element], seconds: float
) -> tuple[str, str]:
    """Return (verdict, figures) of the `testcase` elements of a JUnit report.

    A figure is the sum over the tests, and their maximum if its name begins with "most".
    """
    failed = [
        case.get("name", "")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(failed) - skipped
    figures: dict[str, float] = collections.defaultdict(float)
    for case in cases:
        for element in case.iter("property"):
            name, value = element.attrib["name"], float(element.attrib["value"])
            figures[name] = max(figures[name], value) if is_maximum(name) else figures[name] + value
    parts = [f"{name}: {value:g}" for name, value in figures.items()] + [
        f"{passed} of {len(cases)} tests in {seconds:.0f} s"
    ]
    parts += [f"{skipped} skipped"] if skipped else []
    if failed:
        return "**failed**", "; ".join(parts + ["failed: " + ", ".join(failed)])
    return ("shown" if passed else "**not run**"), "; ".join(parts)


def format_line(number: int, result: Result, first: Result | None) -> str:
    """Return the line of a row of the board.

    Args:
      first: the result of the row in version 0.1.0; None if the row is newer.
    """
    fault, promise, tests = ROWS[number]
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    links = ", ".join(f"[{pathlib.Path(name).stem}](../../{name})" for name in files)
    cells = [result["verdict"], result["figures"], first["figures"] if first else "no such row"]
    return f"| {number} | {fault} | {promise} | {' | '.join(cells)} | {links} | {result['date']} |"


def read_results(path: pathlib.Path = RESULTS) -> dict[int, Result]:
    """Return {row: its last result}."""
    return {int(number): result for number, result in json.loads(path.read_text()).items()}


def write_board(results: Mapping[int, Result]) -> None:
    """Record the results and write the board.

    Args:
      results: {row: its last result}.
    """
    cores = len(os.sched_getaffinity(0))
    head = [
        "# The reliability board",
        "",
        "Injected faults and their outcomes. Written by `python -m benchmarks.reliability`; each "
        f"line has the date of its run, on {platform.machine()}, {cores} CPU cores shared "
        "with other work, and eight devices simulated by XLA. The figures of version 0.1.0 are of "
        "2026-11-21. The promises are in [guarantees](../../docs/guarantees.md).",
        "",
        "| row | fault | must show | verdict | figures | figures of 0.1.0 | tests | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    first = read_results(FIRST_RESULTS)
    rows = [format_line(number, results[number], first.get(number)) for number in sorted(results)]
    notes = [
        line
        for number, (date, text) in NOTES.items()
        if number in results and results[number]["date"] == date
        for line in ("", text)
    ]
    write_atomically(RESULTS, json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    write_atomically(BOARD, "\n".join([*head, *rows, *notes, "", NOT_SHOWN]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--row",
        type=int,
        action="append",
        choices=sorted(ROWS),
        help="run only this row; may be repeated",
    )
    args = parser.parse_args()
    results, failed = read_results(), False
    for number, (_, _, tests) in ROWS.items():
        if not tests:
            results[number] = Result(verdict="open", figures="", date="")
        elif args.row is None or number in args.row:
            verdict, figures = run_tests(tests)
            failed |= verdict != "shown"
            today = f"{datetime.date.today():%Y-%m-%d}"
            results[number] = Result(verdict=verdict, figures=figures, date=today)
            print(f"row {number}: {verdict}: {figures}", flush=True)
            write_board(results)
        elif number not in results:
            results[number] = Result(verdict="not run yet", figures="", date="")
    write_board(results)
    return 1 if failed else 0
