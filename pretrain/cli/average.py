"""average --workdir W --output V: the mean of a run's last checkpoints, as a new workdir.

A model whose parameters are the mean of several checkpoints of one run often does better than any
one of them (Vaswani et al. 2017, section 6.1: the last 5 of the base model, the last 20 of the big
one). The mean is step 0 of V, which `evaluate`, `predict`, `export` and `train` accept. With --ema
it is the exponential moving average that the run maintained (train.ema_decay), from its newest
checkpoint, or the mean of the averages in several checkpoints.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

DEFAULT_LAST = 5  # newest checkpoints in an average, of those that the run has kept


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `average` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    parser.add_argument(
        "--output", required=True, metavar="V", help="new folder: the workdir of the mean"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--last",
        type=int,
        metavar="N",
        help="average the newest N checkpoints (default: up to 5; with --ema 1)",
    )
    which.add_argument(
        "--steps",
        type=int,
        nargs="+",
        action="extend",
        metavar="STEP",
        help="average the checkpoints of these steps",
    )
    parser.add_argument(
        "--ema",
        action="store_true",
        help="average the exponential moving averages (train.ema_decay) instead of the parameters",
    )


def run(args: argparse.Namespace) -> int:
    """Write the workdir of the mean and print what it holds; return 0."""
    count = 1 if args.last is None and args.ema else args.last
    steps = args.steps or list_last_steps(args.workdir, count)
    average_checkpoints(args.workdir, args.output, steps, ema=args.ema)
    kind = "mean of the moving averages" if args.ema else "mean"
    names = ", ".join(f"{step:,}" for step in steps)
    print(f"{args.output}: the {kind} of steps {names} of {args.workdir}")
    return 0


def list_last_steps(workdir: str, number: int | None = None) -> list[int]:
    """Return the newest steps of a workdir, oldest first.

    Args:
      number: how many; None: as many as there are, from 2 to DEFAULT_LAST.
    """
    from pretrain.workdir.checkpoints import Checkpoints
    from pretrain.workdir.workdir import Workdir

    if number is not None and number < 1:
        raise ValueError(f"--last {number}: must be at least 1")
    keep = Workdir.open(workdir).run.checkpoint.keep
    with Checkpoints(workdir, read_only=True) as checkpoints:
        steps = checkpoints.list_steps()
    if len(steps) < (number or 2):
        count = "1 checkpoint" if len(steps) == 1 else f"{len(steps)} checkpoints"
        raise ValueError(
            f"{workdir} has {count} (steps {sorted(steps)}), not {number or 2}, "
            f"which an average needs; checkpoint.keep={keep}. "
            + ("Lower --last, or train" if number else "Train")
            + " with a larger checkpoint.keep"
        )
    return sorted(steps[: number or DEFAULT_LAST])


def average_checkpoints(workdir: str, output: str, steps: Sequence[int], ema: bool = False) -> None:
    """Write the workdir `output`, whose step 0 is the mean of the parameters of `steps`.

    With `ema` it is the mean of their moving averages. The sum is computed in float32. The
    parameters of at most one checkpoint are in memory in addition to the sum.
    """
    import jax

    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.check import check_orbax_path
    from pretrain.workdir.trained import EMA, RAW, check_finite_params, open_trained

    check_orbax_path(output)
    if len(set(steps)) < len(steps):
        raise ValueError(f"--steps {steps}: a step is given twice")
    total, trained = None, None
    for step in steps:
        trained = open_trained(workdir, step, EMA if ema else RAW)
        check_finite_params(
            trained, "the mean would not be either", "name the other steps with --steps"
        )
        params = jax.device_get(trained.params)
        total = params if total is None else jax.tree.map(np.add, total, params)
    assert trained is not None, "at least one step"
    mean = jax.tree.map(lambda x: x / np.float32(len(steps)), total)
    origin: dict[str, Any] = {
        "folder": os.path.basename(os.path.abspath(workdir)),
        "averaged": list(steps),
    }
    if ema:
        origin["ema_decay"] = trained.run.train.ema_decay
    encoding: Any = trained.encoding
    start_workdir(output, trained.run, mean, encoding, origin)
