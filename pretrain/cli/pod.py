"""pod ACTION: ask for a TPU pod, fill it, run a training on all its workers, and keep it running. It drives `gcloud`.

It needs Python 3.11 and nothing else, so that it runs on the laptop from which a pod is steered. See docs/pods.md.
"""

import re
import sys

from pretrain.pod import actions
from pretrain.pod.environment import variables
from pretrain.pod.gcloud import RUNTIMES, GcloudError, Pod, PodRequest, Rehearsal

ACTIONS = {
    "create": "ask for the pod, as a queued resource",
    "push": "copy what git tracks to all workers, and install what it needs",
    "run": "start `-- VERB ...` on all workers, detached, and watch it; a preempted pod is asked for again and goes on",
    "watch": "go on watching what `run` started (the same words)",
    "logs": "the end of the log of one worker (--worker all: of each)",
    "doctor": "run `-- doctor ...` or another short verb on all workers at once, and wait",
    "stop": "end the training: it saves and leaves (--force: at once)",
    "delete": "give the pod back",
}


def add_arguments(parser):
    told = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, help=told.replace("%", "%%"))
    parser.add_argument(
        "--name", required=True, help="of the queued resource; its nodes are called after it"
    )
    parser.add_argument("--zone", required=True, help="e.g. us-east5-a")
    parser.add_argument("--project", help="default: gcloud's own")
    parser.add_argument(
        "--type", help="accelerator type, e.g. v5p-32; create, run and watch need it"
    )
    parser.add_argument("--spot", action="store_true", help="ask for a preemptible pod")
    parser.add_argument(
        "--slices",
        type=int,
        default=1,
        help="how many pods of that type, joined over the data centre's network",
    )
    parser.add_argument(
        "--runtime", help="image of the workers; default: the one that Google names for the type"
    )
    many = {"action": "append", "default": []}
    parser.add_argument(
        "--create-flag",
        **many,
        metavar="FLAG",
        help="handed to `create`, e.g. --create-flag=--reserved",
    )
    parser.add_argument(
        "--connect-flag",
        **many,
        metavar="FLAG",
        help="handed to ssh and scp, e.g. --connect-flag=--tunnel-through-iap",
    )
    _add_run_arguments(parser, many)


def _add_run_arguments(parser, many):
    """What is run on the pod's workers, and how it is watched."""
    parser.add_argument(
        "--env",
        **many,
        metavar="NAME=VALUE",
        help="adds to pretrain/pod/environment.py, or replaces a row",
    )
    parser.add_argument(
        "--wait", action="store_true", help="create, push, run: wait until the pod is ACTIVE"
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run: start it and leave; a preempted pod then stays lost until `watch`",
    )
    parser.add_argument(
        "--poll",
        type=float,
        default=60.0,
        help="seconds between two looks at the pod (default: 60)",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=20,
        help="failures in a row after which the watch gives up (default: 20)",
    )
    parser.add_argument(
        "--worker",
        default="0",
        help="logs: which worker of the first slice, or all (of all slices)",
    )
    parser.add_argument("--lines", type=int, default=30, help="logs: how many (default: 30)")
    parser.add_argument("--follow", action="store_true", help="logs: stay and show what comes")
    parser.add_argument("--force", action="store_true", help="stop: kill it")
    parser.add_argument("--yes", action="store_true", help="delete: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="-- VERB ...",
        help="what to run, e.g. -- train CONFIG --workdir gs://...",
    )


def run(args):
    """Do one action; returns the exit status. Everything that can be wrong with the words is found before the first command."""
    check(args)
    pod = (Rehearsal if args.dry_run else Pod)(
        args.name, args.zone, args.project, args.connect_flag
    )
    try:
        return getattr(actions, f"do_{args.action}")(args, pod) or 0
    except GcloudError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def check(args):
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", args.name):
        raise ValueError(
            f"--name {args.name!r}: gcloud takes lower-case letters, digits and inner hyphens, a letter first"
        )
    if args.slices < 1 or args.poll < 0 or args.tries < 1:
        raise ValueError(
            f"--slices {args.slices} --poll {args.poll} --tries {args.tries}: expected at least 1, 0 and 1"
        )
    if args.action in ("create", "run", "watch"):
        args.request = request(args)
    if args.action in ("run", "watch", "doctor"):
        args.words = args.words or (["doctor"] if args.action == "doctor" else [])
        if not args.words:
            raise ValueError(
                f"pod {args.action}: say what to run behind two hyphens, e.g. -- train CONFIG --workdir gs://bucket/run"
            )
        args.variables = variables(workdir(args), args.env)
    elif args.words:
        raise ValueError(f"pod {args.action} takes no words: {' '.join(args.words)}")


def request(args):
    if not args.type:
        raise ValueError(
            f"pod {args.action} needs --type, e.g. v5p-32 (run and watch: a preempted pod is asked for again)"
        )
    generation = args.type.rpartition("-")[0]
    if not args.runtime and generation not in RUNTIMES:
        hint = (
            "; TPU7x is reached through GKE only, see docs/pods.md"
            if args.type.startswith("tpu7x")
            else ""
        )
        known = ", ".join(f"{name}-N" for name in RUNTIMES)
        raise ValueError(
            f"--type {args.type}: no runtime is known for it; known are {known}. Name one with --runtime{hint}"
        )
    return PodRequest(
        args.type,
        args.runtime or RUNTIMES[generation],
        args.spot,
        args.slices,
        tuple(args.create_flag),
    )


def workdir(args):
    """The --workdir among the words. What is to outlive the pod must lie outside it."""
    found = [word.partition("=")[2] for word in args.words if word.startswith("--workdir=")]
    found += [after for word, after in zip(args.words, args.words[1:]) if word == "--workdir"]
    if args.action in ("run", "watch") and (not found or not found[-1].startswith("gs://")):
        seen = f"--workdir {found[-1]}" if found else "no --workdir"
        raise ValueError(
            f"pod {args.action}: {seen}; it must be gs://BUCKET/FOLDER: a pod's disks end with it, and its workers share none"
        )
    return found[-1] if found and found[-1].startswith("gs://") else None
