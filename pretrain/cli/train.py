"""train CONFIG --workdir W [path=value ...]: read the words, then `pretrain.training.loop`."""

import sys
import time

from pretrain.config import load
from pretrain.distributed import processes
from pretrain.workdir.check import check_place


def add_arguments(parser):
    parser.add_argument(
        "config", help="a name in configs/, a .py file like those, or a saved config.json"
    )
    parser.add_argument(
        "--workdir", required=True, help="where the run lives; an existing one is continued"
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="continue a workdir under a changed configuration",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="e.g. train.steps=100 optimizer.learning_rate=3e-4",
    )
    processes.add_arguments(parser)


def run(args):
    began = time.time()
    config = load(args.config, args.overrides)  # a misspelt word ends here, before JAX is imported
    check_place(args.workdir)
    processes.start(args)
    return finish(config, args.workdir, args.allow_changes, began)


def finish(config, workdir, allow_changes=False, began=None):
    """`train` to the end; returns an exit status and says why where it is not 0."""
    from pretrain.distributed.replica_check import Altered
    from pretrain.training.divergence import Diverged
    from pretrain.training.loop import train

    try:
        signal = train(config, workdir, allow_changes, began)
    except Diverged as error:
        print(f"error: {error}", file=sys.stderr)
        return processes.leave(1)
    except Altered as error:
        print(f"error: {error}", file=sys.stderr)
        return processes.leave(3)
    return 128 + signal if signal else 0
