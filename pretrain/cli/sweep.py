"""sweep CONFIG --folder F path=a,b ...: train each combination of values, and compare the runs.

    python -m pretrain sweep bert_mini --folder runs/rates data.store=runs/texts \\
        optimizer.learning_rate=3e-4,1e-3 train.seed=0,1

F has a workdir for each member, named by what differs, F/scores.json and F/report. The same command
resumes what was stopped, and trains again what failed.
"""

from __future__ import annotations

import argparse
import os

from pretrain.api.sweeping import SweepOptions, export_best, run_sweep, write_comparison
from pretrain.host.terminal import print_error
from pretrain.settings.verb_options import add_options, read_options

LAST_BYTES = 8_192  # of a log, in which the reason of a failure is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sweep` to a parser."""
    add_options(parser, SweepOptions)


def run(args: argparse.Namespace) -> int:
    """Train the members and print their table; return the exit status: 1 if one failed."""
    options = read_options(SweepOptions, args)
    result = run_sweep(options)
    print(result)
    for name in result.failed:
        log = f"{result.folder}/{name}.log"
        print_error(f"{name} failed: {read_last_line(log)} ({log})")
    if result.signal:
        print("stopped; the same command resumes the sweep")
    elif result.best:
        print(f"best by {result.metric}: {result.best}", flush=True)
    write_comparison(options, result)
    if result.signal:
        return 128 + result.signal
    if options.export:
        export_best(options, result)
        print(f"{options.export}: the best, exported")
    return 1 if result.failed else 0


def read_last_line(log: str) -> str:
    """Return the last line with text of a file, without its label of an error."""
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - LAST_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line for line in lines[::-1] if line.strip()), "").removeprefix("error: ")
