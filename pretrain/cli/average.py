"""average --workdir W --output V: the mean of a run's last checkpoints, as a workdir of its own.

A model whose parameters are the mean of a few checkpoints of one run often does better than any of them (Vaswani et al. 2017, section
6.1: the last 5 of the base model, the last 20 of the big one). V's step 0 holds it: `evaluate`, `predict`, `export` and `train` take it.
"""

import numpy as np


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument("--output", required=True, metavar="V", help="a new folder for the mean")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--last", type=int, default=5, metavar="N", help="the newest N checkpoints (%(default)s)"
    )
    which.add_argument(
        "--steps", type=int, nargs="+", action="extend", metavar="STEP", help="these"
    )


def run(args):
    steps = average(args.workdir, args.output, args.steps or last(args.workdir, args.last))
    print(
        f"{args.output}: the mean of steps {', '.join(f'{step:,}' for step in steps)} of {args.workdir}"
    )
    return 0


def last(workdir, number):
    """The newest `number` steps of a workdir, oldest first. Raises ValueError where there are fewer."""
    from pretrain.workdir.checkpoints import Checkpoints, read_run

    if number < 1:
        raise ValueError(f"--last {number}: at least 1")
    keep = read_run(workdir).checkpoint.keep
    with Checkpoints(workdir, read_only=True) as checkpoints:
        steps = checkpoints.steps()
    if len(steps) < number:
        raise ValueError(
            f"{workdir} has {len(steps)} checkpoints, of steps {sorted(steps)}, not {number} (checkpoint.keep={keep}): "
            "take fewer by --last, or train with checkpoint.keep larger"
        )
    return sorted(steps[:number])


def average(workdir, output, steps):
    """Make the workdir `output`, whose step 0 has the mean of the parameters of `steps`, added up in float32. Returns the steps.

    Raises FileNotFoundError for a step that is not there, DamagedCheckpoint for one that is not sound, ValueError for one that is given
    twice, and FileExistsError where `output` is there and not empty. One checkpoint beside the sum is in memory at a time.
    """
    import os

    import jax

    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.load import open_trained

    if len(set(steps)) < len(steps):
        raise ValueError(f"steps {steps}: one is given twice")
    total = None
    for step in steps:
        trained = open_trained(workdir, step)
        params = jax.device_get(trained.params)
        total = params if total is None else jax.tree.map(np.add, total, params)
    mean = jax.tree.map(lambda x: x / np.float32(len(steps)), total)
    origin = {"folder": os.path.basename(os.path.abspath(workdir)), "averaged": list(steps)}
    start_workdir(output, trained.run, mean, trained.vocabulary, origin)
    return steps
