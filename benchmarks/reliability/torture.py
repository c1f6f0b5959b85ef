"""Torture runs for hours, by random schedules of faults, and compare each with an undisturbed run.

    python -m benchmarks.reliability.torture --hours 2
    python -m benchmarks.reliability.torture --seed 17      # one schedule again

A schedule (torture_schedule.py) is a run of a tiny BERT, GPT or T5 with up to 14 faults: signals at
random moments, a full disk, read-only folders, damaged checkpoints, logs, stores and leases, the
clock set back, a second writer. Device counts and batch sizes may change with each start. Then one
undisturbed start ends the run, and must give

- the rows of an undisturbed run, in order, each once, whatever changed;
- the bits of its parameters and of its optimizer's state and the values of its metrics, where
  nothing changed;
- its parameters within a tolerance, where device counts changed.

Each start, besides, may end only as its fault allows: in time, with a known status, one error line
and no traceback. A schedule that fails prints the command that repeats it, and leaves its workdir
and outputs. A seed gives the same faults again; signals come after a share of the time of an
undisturbed run, so what they hit depends on the machine.

Needs Linux, a C compiler (`cc`, for the clock) and root, because it mounts small disks. The results
go to benchmarks/results/torture.json; --seed records nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator

from benchmarks.harness import duration, int_at_least
from benchmarks.reliability import torture_verdict as verdict
from benchmarks.reliability.torture_clock import set_clock
from benchmarks.reliability.torture_faults import befall_run
from benchmarks.reliability.torture_references import References
from benchmarks.reliability.torture_results import Totals, format_results
from benchmarks.reliability.torture_run import Failed, TorturedRun, mount_disk
from benchmarks.reliability.torture_schedule import (
    BATCH_SIZE,
    DEVICES,
    STEPS,
    Schedule,
    draw_schedule,
)
from benchmarks.results_pages import add_result


class Stopped(Exception):
    """A signal asked the campaign to stop."""


def judge_end(run: TorturedRun, schedule: Schedule, references: References) -> float:
    """Compare the end of a run with the undisturbed one; raise Failed where it differs.

    Returns:
      The largest absolute difference of a parameter; 0.0 where it is not compared.
    """
    undisturbed = references.get_run(schedule.model)
    for one in (undisturbed, run):
        rows, problem = verdict.order_rows(verdict.read_row_records(one.rows_file), STEPS)
        problem = problem or verdict.compare_rows(rows, references.get_rows(schedule.model))
        if problem:
            raise Failed(problem if one is run else f"the undisturbed run: {problem}")
    recorded = verdict.read_record(run.workdir, STEPS)["rows"]
    if recorded != len(rows):
        raise Failed(f"the last checkpoint records {recorded} rows, {len(rows)} were read")
    is_same = schedule.change == "nothing"
    problem = verdict.compare_metrics(
        verdict.read_untimed_rows(run.workdir),
        verdict.read_untimed_rows(undisturbed.workdir),
        run.lost_steps,
        only_steps=not is_same,
    )
    if problem:
        raise Failed(problem)
    ends = [verdict.read_fingerprints(one.workdir, STEPS) for one in (run, undisturbed)]
    if is_same and ends[0] != ends[1]:
        raise Failed("the parameters or the optimizer's state differ from the undisturbed run's")
    if schedule.change != "devices":
        return 0.0
    difference = verdict.measure_difference(
        *(verdict.read_params(one.workdir, STEPS) for one in (run, undisturbed))
    )
    if not difference <= verdict.TOLERANCE:  # it may be NaN
        raise Failed(f"a parameter differs by {difference:.2g}")
    return difference


def record_failure(run: TorturedRun, error: Exception, folder: pathlib.Path) -> str:
    """Write the history of a run that failed and copy its workdir, and return what failed.

    An error that is not `Failed` has its traceback in the history.
    """
    failure = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    lines = [*run.history, failure]
    if not isinstance(error, Failed):
        lines += traceback.format_exception(error)
    (folder / "notes" / "history.txt").write_text("\n".join(lines))
    if run.workdir.exists():  # its disk will be unmounted
        shutil.copytree(run.workdir, folder / "run", symlinks=True)
    return failure


def torture_run(
    schedule: Schedule, references: References, folder: pathlib.Path, totals: Totals
) -> str:
    """Carry out a schedule and return what failed; "" if nothing did."""
    path, _, store = references.get_config(schedule.model)
    pace = references.get_run(schedule.model).pace
    with mount_disk(folder / "disk") as disk:
        run = TorturedRun(path, disk, folder / "notes")
        run.store, run.pace, run.clock = folder / "store", pace, references.clock
        set_clock(run.clock, 0)
        shutil.copytree(store.path, run.store)
        try:
            for fault in schedule.faults:
                befall_run(run, fault)
                print(f"  {run.history[-1]}", flush=True)
                if run.is_finished:
                    break
            run.finish_run(DEVICES, BATCH_SIZE)
            difference = judge_end(run, schedule, references)
            totals.largest_difference = max(totals.largest_difference, difference)
            return ""
        except Stopped:
            raise
        except Exception as error:
            run.end_processes()
            return record_failure(run, error, folder)
        finally:
            run.end_processes()
            totals.faults.update(run.counts)
            totals.starts += run.num_starts


def run_campaign(
    seeds: Iterator[int],
    end: float,
    references: References,
    workdir: pathlib.Path,
    totals: Totals,
) -> None:
    """Carry out schedules until `time.monotonic()` is `end`, or a signal comes, and count them."""
    with contextlib.suppress(Stopped):
        for seed in seeds:
            schedule, began = draw_schedule(seed), time.monotonic()
            if began > end:
                break
            folder = workdir / f"seed{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            failure = torture_run(schedule, references, folder, totals)
            name = f"seed {seed}: {schedule.model}, changed: {schedule.change}"
            print(f"{name}: {failure or 'passed'}, {time.monotonic() - began:.0f} s", flush=True)
            if failure:
                command = f"python -m benchmarks.reliability.torture --seed {seed}"
                print(f"  repeat it: {command}", flush=True)
                totals.failed.append(f"{name}: {failure}")
            else:
                totals.passed[schedule.change] += 1
                shutil.rmtree(folder)


def stop_campaign(number: int, frame: object) -> None:
    raise Stopped


def make_workdir(folder: pathlib.Path | None) -> pathlib.Path:
    """Return the absolute path of a folder; of a new temporary one for None."""
    return (folder or pathlib.Path(tempfile.mkdtemp(prefix="torture"))).resolve()


def carry_out(args: argparse.Namespace, workdir: pathlib.Path, totals: Totals) -> None:
    """Carry out the schedules of a command, and add a section for a campaign's.

    A campaign of which no schedule ended has no section.
    """
    references = References(workdir / "undisturbed")
    load, began = os.getloadavg()[0], time.monotonic()
    if args.seed:
        run_campaign(iter(args.seed), float("inf"), references, workdir, totals)
        return
    seconds = args.minutes * 60 if args.minutes else args.hours * 3600
    seeds = iter(range(args.first_seed, sys.maxsize))
    try:
        run_campaign(seeds, began + seconds, references, workdir, totals)
    finally:
        if totals.passed or totals.failed:
            hours = (time.monotonic() - began) / 3600
            add_result("torture", format_results(totals, args.first_seed, hours, load), "Torture")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=duration, default=2.0)
    length.add_argument("--minutes", type=duration)
    length.add_argument(
        "--seed",
        type=int_at_least(0),
        action="append",
        help="carry out this schedule alone; may be repeated",
    )
    parser.add_argument(
        "--first-seed", type=int_at_least(0), default=1, help="of the first schedule"
    )
    parser.add_argument(
        "--workdir",
        type=pathlib.Path,
        help="by default a temporary folder, deleted unless a schedule fails",
    )
    args = parser.parse_args()
    if os.geteuid():
        parser.error("it mounts small disks, so it must run as root")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_campaign)
    workdir, totals = make_workdir(args.workdir), Totals()
    try:
        carry_out(args, workdir, totals)
    finally:
        # What failed stays, to be looked at.
        if args.workdir is None and not totals.failed:
            shutil.rmtree(workdir, ignore_errors=True)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
