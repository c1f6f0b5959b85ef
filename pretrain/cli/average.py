"""average --workdir W --output V: the mean of a run's last checkpoints, as a workdir of its own.

A model whose parameters are the mean of a few checkpoints of one run often does better than any of them (Vaswani et al. 2017, section
6.1: the last 5 of the base model, the last 20 of the big one). V's step 0 holds it: `evaluate`, `predict`, `export` and `train` take it.
With --ema it is the exponential moving average that the run kept itself (train.ema_decay), in its newest checkpoint, or the mean of those
in several checkpoints.
"""

import numpy as np


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument("--output", required=True, metavar="V", help="a new folder for the mean")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--last", type=int, metavar="N", help="the newest N checkpoints (5; with --ema 1)"
    )
    which.add_argument(
        "--steps", type=int, nargs="+", action="extend", metavar="STEP", help="these"
    )
    parser.add_argument(
        "--ema",
        action="store_true",
        help="take the moving average of the parameters that train.ema_decay keeps, not the parameters",
    )


def run(args):
    number = (1 if args.ema else 5) if args.last is None else args.last
    steps = args.steps or last(args.workdir, number)
    average(args.workdir, args.output, steps, ema=args.ema)
    kind = "mean of the moving averages" if args.ema else "mean"
    print(
        f"{args.output}: the {kind} of steps {', '.join(f'{step:,}' for step in steps)} of {args.workdir}"
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


def average(workdir, output, steps, ema=False):
    """Make the workdir `output`, whose step 0 has the mean of the parameters of `steps`, added up in float32.

    ema: of their moving averages. Raises FileNotFoundError for a step that is not there, DamagedCheckpoint for one that is not sound, ValueError
    for one that is given twice, FileExistsError where `output` is there and not empty, and ConfigError where no moving average is kept. One
    checkpoint beside the sum is in memory at a time: its parameters, and with `ema` the state of its optimizer.
    """
    import os

    import jax

    from pretrain.inference.trained import open_trained
    from pretrain.training.new_workdir import start_workdir

    if len(set(steps)) < len(steps):
        raise ValueError(f"steps {steps}: one is given twice")
    total = None
    for step in steps:
        trained = open_trained(workdir, step)
        params = jax.device_get(read_ema(trained) if ema else trained.params)
        total = params if total is None else jax.tree.map(np.add, total, params)
    mean = jax.tree.map(lambda x: x / np.float32(len(steps)), total)
    origin = {"folder": os.path.basename(os.path.abspath(workdir)), "averaged": list(steps)}
    if ema:
        origin["ema_decay"] = trained.run.train.ema_decay
    start_workdir(output, trained.run, mean, trained.vocabulary, origin)


def read_ema(trained):
    """Return the moving average in the checkpoint of a `Trained`, read with the whole state of the optimizer. Raises ConfigError where none is kept."""
    import jax

    from pretrain.overrides import ConfigError
    from pretrain.training.optimizers import make_run_optimizer
    from pretrain.training.optimizers.ema import ema_params
    from pretrain.workdir.checkpoints import Checkpoints

    if not trained.run.train.ema_decay:
        raise ConfigError(
            f"{trained.workdir} keeps no moving average of its parameters: train with train.ema_decay, or leave --ema out"
        )
    abstract = jax.eval_shape(make_run_optimizer(trained.run).init, trained.params)
    with Checkpoints(trained.workdir, read_only=True) as checkpoints:
        return ema_params(checkpoints.restore_optimizer(trained.step, abstract))
