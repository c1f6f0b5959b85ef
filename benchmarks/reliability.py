"""The reliability board: every injected fault, all of them, with its figures.

    python -m benchmarks.reliability [--row 3 --row 15]

Runs the tests that ROWS names, one process a row, with CLOZE_BOARD=whole (the suite tries a few of each fault), and writes
benchmarks/reliability.md: what failed is written as failed, what has no test is written as open. A row that is not run again keeps
the line that it has, with its date.
"""

import argparse
import collections
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from data.store.atomic import write_atomically

ROOT = pathlib.Path(__file__).resolve().parents[1]
BOARD = ROOT / "benchmarks" / "reliability.md"

# row: (the fault, what must be shown, the tests). Without tests: open.
ROWS = {
    1: ("SIGKILL while compiling, in a step, in an evaluation, just after a save, at the last step; BERT, T5, GPT",
        "the same losses at every step, the same parameters and moments", ["tests/faults/test_killed.py"]),
    2: ("the data's ledger: epochs, packing, mixtures, starts at any step, 1 to 4 hosts", "no row repeated, none missing",
        ["tests/data/test_pipeline.py::test_ledger", "tests/data/test_pipeline.py::test_tensorflow_gives_the_same_batches_from_any_step"]),
    3: ("a finished checkpoint: bits flipped, files cut, blocks zeroed, each file deleted", "never wrong in silence; the step before, with one line",
        ["tests/faults/test_damaged_checkpoint.py"]),
    4: ("SIGKILL while a checkpoint is written, gets its name, or older ones are deleted",
        "the newest committed one is sound, and that of the undisturbed run; no litter once the run goes on", ["tests/faults/test_killed_saving.py"]),
    5: ("NaN batches and spikes", "skipped and counted, then back, then stop", ["tests/pretrain/training/test_divergence.py"]),
    6: ("SIGTERM while compiling, reading, stepping, saving, evaluating; twice; Ctrl-C",
        "one: no step lost, out within 5 s of the step's end, 128 + signal; two: at once; the same bits afterwards",
        ["tests/faults/test_asked_to_stop.py", "tests/pretrain/training/test_loop.py::test_a_signal_saves_and_leaves"]),
    7: ("saved on eight devices, continued on others, and on another number of hosts", "the same bits restored, the same run",
        ["tests/pretrain/workdir/test_checkpoints.py::test_what_was_saved_on_one_mesh_is_restored_on_another",
         "tests/pretrain/distributed/test_hosts.py::test_two_processes_make_the_run_of_one_and_four_continue_it"]),
    8: ("a step, a batch, a save or an evaluation that hangs; in one of two processes; a host that hangs; clean runs that compile slowly",
        "the stacks of all threads, status 75, all out within 5 s of the limit; no false alarm",
        ["tests/faults/test_hung.py", "tests/pretrain/distributed/test_hosts.py::test_a_host_that_hangs_is_named_and_the_others_leave"]),
    9: ("masked rows, padding only, ids out of range", "no NaN; refused on the host",
        ["tests/pretrain/training/test_nothing_to_read.py", "tests/data/test_bad_ids.py"]),
    10: ("50 misspelt words; 10 changed configurations on continuing; random words, configurations and corpora",
         "none accepted in silence; the nearest named; the difference told; one line, no traceback",
         ["tests/faults/test_mutated_words.py", "tests/faults/test_random_words.py"]),
    11: ("another type, shape, key or family of models", "refused, 11 of 11", ["tests/faults/test_another_tree.py"]),
    12: ("a disk that is full; a checkpoints folder that a file takes the place of", "ends non-zero, does not say saved; the step before is intact", ["tests/faults/test_full_disk.py"]),
    13: ("one of two processes killed three times under `local --restarts`", "three restarts; the same bits", ["tests/faults/test_restarts.py"]),
    14: ("crafted archives, pickles, YAML, safetensors; a folder that asks for remote code", "nothing executed, nothing written",
         ["tests/faults/test_crafted_files.py", "tests/pretrain/convert/test_import_folder.py"]),
    15: ("a token store with a bit flipped, a file missing or cut", "named and refused; with data.on_corrupt=skip the damaged documents alone are left out",
         ["tests/faults/test_damaged_store.py", "tests/data/store/test_salvage.py"]),
    16: ("another tokenizer, size, special ids", "refused by fingerprint in train, evaluate, export, predict", ["tests/faults/test_another_vocabulary.py"]),
    17: ("a replica altered, a gradient's bit flipped behind its sum", "the device named, before a save", ["tests/faults/test_replicas.py"]),
    18: ("a workdir that cannot be one", "refused before JAX is imported, with what to do", ["tests/faults/test_foreign_places.py"]),
    19: ("2,000 batches, 60 saves, 10 evaluations", "memory grows by less than 1 MB in 100 steps", ["tests/faults/test_memory.py"]),
    20: ("killed and continued, twice", "each step once in metrics.jsonl",
         ["tests/pretrain/training/test_loop.py::test_a_run_that_was_killed_twice_ends_with_the_same_bits"]),
    21: ("a random schedule of ten faults (kills, stops, hangs, a full disk, a damaged checkpoint), three seeds", "the same bits as the undisturbed run",
         ["tests/faults/test_soak.py"]),
    25: ("a `local` run of two processes, also on a machine whose own name resolves to a network interface", "every socket that listens is on a loopback address",
         ["tests/faults/test_network.py"]),
    22: ("two runs on one workdir: one after the other, at the same moment, after kill -9, after a long SIGSTOP, in two processes; `local` killed; two that build one workdir",
         "one trains, with the bits of the undisturbed run; the other is refused by the holder's host, process and time; no child goes on writing",
         ["tests/faults/test_two_writers.py", "tests/pretrain/workdir/test_lease.py", "tests/data/store/test_atomic.py"]),
    23: ("a checkpoint that cannot be read for another cause than damage: permissions, open files, memory, network, disk, a library's own errors",
         "the cause in one line, nothing moved; the same command goes on to the same bits once the cause is gone", ["tests/faults/test_undamaged_errors.py"]),
    24: ("imported weights with NaN or infinite values; an encoder imported without its head", "refused with the tensor's name and the flag that allows it",
         ["tests/pretrain/convert/test_unsound_weights.py"]),
}  # fmt: skip

NOT_SHOWN = """## What cannot be shown on a CPU

Hangs of the interconnect between chips, corruption of data inside a TPU or GPU, and the permissions and failures of a real bucket. Nothing on
this page has met them.
"""


def run(tests):
    """(verdict, figures): the tests of one row in a process of their own, and the sums of what they recorded."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        words = [
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
        began = time.monotonic()
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=os.environ | {"CLOZE_BOARD": "whole"},
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - began
        if not report.exists():
            raise RuntimeError(f"{' '.join(tests)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = xml.etree.ElementTree.parse(report).getroot().findall(".//testcase")
    if done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    return judge(cases, seconds)


def judge(cases, seconds):
    """(verdict, figures) of the `testcase` elements of a report."""
    bad = [
        case.get("name")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(bad) - skipped
    figures = collections.Counter()
    for case in cases:
        for one in case.iter("property"):
            figures[one.get("name")] += float(one.get("value"))
    parts = [f"{name}: {value:g}" for name, value in figures.items()] + [
        f"{passed} of {len(cases)} tests in {seconds:.0f} s"
    ]
    parts += [f"{skipped} skipped"] if skipped else []
    if bad:
        return "**failed**", "; ".join(parts + ["failed: " + ", ".join(bad)])
    return ("shown" if passed else "**not run**"), "; ".join(parts)


def line(number, verdict, figures, date):
    fault, promise, tests = ROWS[number]
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    links = ", ".join(f"[{pathlib.Path(name).stem}](../{name})" for name in files)
    return f"| {number} | {fault} | {promise} | {verdict} | {figures} | {links} | {date} |"


def kept():
    """{row: its line} of the board as it is."""
    text = BOARD.read_text() if BOARD.exists() else ""
    return {
        int(found[1]): found[0] for found in re.finditer(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    }


def write(lines):
    head = [
        "# The reliability board",
        "",
        "Faults that were injected, and what happened. Written by `python -m benchmarks.reliability`; each line has the date of its run, on "
        f"{platform.machine()}, {os.cpu_count()} CPU cores shared with other work, and eight devices simulated by XLA. The promises behind it: "
        "[guarantees](../docs/guarantees.md).",
        "",
        "| row | fault | must show | verdict | figures | tests | date |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [lines[number] for number in sorted(lines)]
    write_atomically(BOARD, "\n".join([*head, *rows, "", NOT_SHOWN]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--row",
        type=int,
        action="append",
        choices=sorted(ROWS),
        help="only this one; may be given again",
    )
    args = parser.parse_args()
    lines, failed = kept(), False
    for number, (_, _, tests) in ROWS.items():
        if not tests:
            lines[number] = line(number, "open", "", "")
        elif args.row is None or number in args.row:
            verdict, figures = run(tests)
            failed |= verdict != "shown"
            lines[number] = line(number, verdict, figures, f"{datetime.date.today():%Y-%m-%d}")
            print(f"row {number}: {verdict}: {figures}", flush=True)
            write(lines)
        elif number not in lines:
            lines[number] = line(number, "not run yet", "", "")
    write(lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
