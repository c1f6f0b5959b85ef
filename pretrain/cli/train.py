"""train CONFIG --workdir W [path=value ...]: train a model, or resume its training."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

from pretrain.api.training import TrainOptions, run_training
from pretrain.host.terminal import print_error
from pretrain.processes import processes
from pretrain.settings.verb_options import add_options, read_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train` to a parser."""
    add_options(parser, TrainOptions)
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train a run to its end; return the exit status."""
    options, began = read_options(TrainOptions, args), time.time()
    join_run = functools.partial(processes.join_run, args)
    return report_end(lambda: run_training(options, began, join_run).signal)


def report_end(train: Callable[[], int | None]) -> int:
    """Train, and print why the run failed if it did.

    Args:
      train: trains to the end; it returns None, or the number of the signal that ended it early.

    Returns:
      0 for success, 1 after divergence, 3 if devices disagree, 128 + n after signal n.
    """
    try:
        signal = train()
    except (ValueError, OSError):  # bad input, found before JAX is imported
        raise
    except (ArithmeticError, RuntimeError) as error:
        from pretrain.mesh.replica_check import ReplicaMismatch
        from pretrain.training.divergence import Diverged

        if not isinstance(error, (Diverged, ReplicaMismatch)):
            raise
        print_error(error)
        return processes.exit_process(1 if isinstance(error, Diverged) else 3)
    return 128 + signal if signal else 0
