"""train CONFIG --workdir W [path=value ...]: train a model, or resume its training."""

from __future__ import annotations

import argparse
import time

from pretrain.api.training import train
from pretrain.config import Run, load
from pretrain.distributed import processes
from pretrain.terminal import print_error
from pretrain.training.monitoring.options import (
    TRACKERS,
    UNWATCHED,
    Monitoring,
    check_prometheus_path,
    check_tracker,
    parse_step_range,
)
from pretrain.workdir.check import check_workdir_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train` to a parser."""
    parser.add_argument(
        "config",
        help="name of a configuration in configs/, path of a .py file of the same form, or a saved "
        "config.json",
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


def parse_monitoring(args: argparse.Namespace, last_step: int) -> Monitoring:
    """Return how the arguments watch a run that ends after `last_step`."""
    return Monitoring(
        profile=parse_step_range(args.profile, last_step) if args.profile is not None else None,
        prometheus=check_prometheus_path(args.prometheus) if args.prometheus is not None else None,
        tracker=check_tracker(args.tracker),
    )


def run(args: argparse.Namespace) -> int:
    """Check the arguments, then train; return the exit status."""
    began = time.time()
    config = load(args.config, args.overrides)  # a misspelt field fails before JAX is imported
    monitoring = parse_monitoring(args, config.train.last_step)
    check_workdir_path(args.workdir)
    processes.join_run(args)
    return run_training(config, args.workdir, args.allow_changes, began, monitoring, args.source)


def run_training(
    config: Run,
    workdir: str,
    allow_changes: bool = False,
    began: float | None = None,
    monitoring: Monitoring = UNWATCHED,
    source: str | None = None,
) -> int:
    """Train a run to its end and print why it failed if it did.

    Args:
      config: the configuration of the run.
      workdir: folder of the run.
      allow_changes: resume although the configuration has changed.
      began: time at which the process began, for the goodput; None for now.
      monitoring: how the run is watched.
      source: workdir whose parameters a new run begins with, as `train --from`.

    Returns:
      0 for success, 1 after divergence, 3 if devices disagree, 128 + n after signal n.
    """
    from pretrain.distributed.replica_check import ReplicaMismatch
    from pretrain.training.divergence import Diverged

    try:
        signal = train(
            config,
            workdir,
            allow_changes=allow_changes,
            pretrained=source,
            monitoring=monitoring,
            began=began,
            join_run=lambda: None,  # this process has joined them
        ).signal
    except Diverged as error:
        print_error(error)
        return processes.exit_process(1)
    except ReplicaMismatch as error:
        print_error(error)
        return processes.exit_process(3)
    return 128 + signal if signal else 0
