"""train CONFIG --workdir W [path=value ...]: train a model, or resume its training."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

from pretrain.api.training import train
from pretrain.cli.verbs import CONFIG_HELP
from pretrain.host.terminal import print_error
from pretrain.processes import processes
from pretrain.training.monitoring.options import TRACKERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train` to a parser."""
    parser.add_argument(
        "config",
        help=f"{CONFIG_HELP}, here or in a bucket",
    )
    parser.add_argument(
        "--workdir", required=True, help="folder of the run; an existing run is resumed"
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="resume a run although its configuration has changed",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="WORKDIR",
        help="begin a new run of images with the parameters of another one, but for its head "
        "(docs/pictures.md); texts have `finetune --from`",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. train.steps=100 optimizer.learning_rate=3e-4",
    )
    add_monitoring_arguments(parser)
    processes.add_arguments(parser)


def add_monitoring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that watch a run; they are no part of its configuration."""
    parser.add_argument(
        "--profile",
        metavar="FIRST:LAST",
        help="trace these steps and write the trace below the workdir (docs/watching.md)",
    )
    parser.add_argument(
        "--prometheus",
        metavar="FILE.prom",
        help="write the newest metrics to this file, for node_exporter's textfile collector",
    )
    parser.add_argument(
        "--tracker",
        choices=["none", *TRACKERS],
        default="none",
        help="also log metrics, configuration and end state to Weights & Biases or MLflow",
    )


def run(args: argparse.Namespace) -> int:
    """Train a run to its end; return the exit status."""
    began = time.time()
    return report_end(
        lambda: (
            train(
                args.config,
                args.workdir,
                args.overrides,
                allow_changes=args.allow_changes,
                pretrained=args.source,
                profile=args.profile,
                prometheus=args.prometheus,
                tracker=args.tracker,
                began=began,
                join_run=functools.partial(processes.join_run, args),
            ).signal
        )
    )


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
