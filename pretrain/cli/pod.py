"""pod ACTION: create a TPU pod with `gcloud`, run a training on all its workers and watch it.

It needs only Python 3.11, so that it runs on any laptop. See docs/pods.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from pretrain.cli.pod_manifest import (
    ON_SHARED_DISK,
    add_manifest_arguments,
    list_sweep,
    make_manifest_request,
    refuse_manifest_flags,
    write_manifest,
)
from pretrain.cli.verb_check import check_verb
from pretrain.host.terminal import print_error
from pretrain.pod import actions
from pretrain.pod.environment import build_environment, parse_variables
from pretrain.pod.gcloud import DryRunPod, GcloudError, Pod, PodRequest
from pretrain.pod.refusals import find_remedy
from pretrain.pod.tpu_types import RUNTIMES, count_chips, suggest_type

ACTIONS = {
    "create": "request the pod as a queued resource; `-- VERB ...` is checked first, and not run",
    "push": "copy the files that git tracks to all workers, and install the dependencies",
    "run": "check `-- VERB ...`, start it on all workers, detached, and watch it; a preempted pod "
    "is requested again and the run resumes",
    "watch": "resume watching what `run` started (with the same arguments)",
    "logs": "print the end of one worker's log (--worker all: of each)",
    "doctor": "run `-- doctor ...` or another short verb on all workers at once, and wait",
    "stop": "end the training, which saves a checkpoint first (--force: at once)",
    "delete": "delete the pod",
    "manifest": "check `-- VERB ...`, then print the file with which GKE (jobset, xpk), Slurm or "
    "SkyPilot starts it",
}


# field of a flag -> the actions that take it; the other flags may be shared by several commands.
ACTIONS_OF_FLAG = {
    "wait": ("create", "push", "run", "watch"),
    "detach": ("run", "watch"),
    **dict.fromkeys(("worker", "lines", "follow"), ("logs",)),
    "force": ("stop",),
    "yes": ("delete",),
}
MAX_POLL = 86_400.0  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pod` to a parser."""
    actions_help = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, help=actions_help.replace("%", "%%"))
    parser.add_argument(
        "--name", required=True, help="name of the queued resource; its nodes are named after it"
    )
    parser.add_argument(
        "--zone", help="zone, e.g. us-east5-a; of `manifest` only xpk and skypilot need it"
    )
    parser.add_argument("--project", help="project (default: the one set in gcloud)")
    parser.add_argument(
        "--type", help="accelerator type, e.g. v5p-32; required by create, run and watch"
    )
    parser.add_argument("--spot", action="store_true", help="request a preemptible pod")
    parser.add_argument(
        "--slices",
        type=int,
        default=1,
        help="number of pods of that type, connected by the data centre network "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--runtime", help="image of the workers (default: Google's choice for the type)"
    )
    repeated = {"action": "append", "default": []}
    parser.add_argument(
        "--create-flag",
        **repeated,
        metavar="FLAG",
        help="additional flag for `gcloud ... create`, e.g. --create-flag=--reserved; repeatable",
    )
    parser.add_argument(
        "--connect-flag",
        **repeated,
        metavar="FLAG",
        help="additional flag for `gcloud ... ssh` and `scp`, e.g. "
        "--connect-flag=--tunnel-through-iap; repeatable",
    )
    _add_run_arguments(parser, repeated)
    add_manifest_arguments(parser)


def _add_run_arguments(parser: argparse.ArgumentParser, repeated: dict[str, Any]) -> None:
    """Add the arguments about what runs on the workers and how it is watched."""
    parser.add_argument(
        "--env",
        **repeated,
        metavar="NAME=VALUE",
        help="environment variable for the workers, added to those in "
        "pretrain/pod/environment.py or replacing one; repeatable",
    )
    parser.add_argument(
        "--wait", action="store_true", help="create, push, run: wait until the pod is ACTIVE"
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run: start without watching; a preempted pod then stays down until `watch`",
    )
    parser.add_argument(
        "--poll",
        type=float,
        default=60.0,
        help="seconds between two checks of the pod (default: %(default)g)",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=20,
        help="consecutive failures after which watching ends (default: %(default)s)",
    )
    parser.add_argument(
        "--worker",
        default="0",
        help="logs: index of a worker of the first slice, or all for all slices "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--lines", type=int, default=30, help="logs: number of lines (default: %(default)s)"
    )
    parser.add_argument("--follow", action="store_true", help="logs: print new lines as they come")
    parser.add_argument("--force", action="store_true", help="stop: kill the training")
    parser.add_argument("--yes", action="store_true", help="delete: do not ask for confirmation")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands without running them"
    )
    parser.add_argument(
        "argv",
        nargs="*",
        metavar="-- VERB ...",
        help="verb to run and its arguments, e.g. -- train CONFIG --workdir gs://...",
    )


def list_given(args: argparse.Namespace) -> set[str]:
    """Return the fields of the flags that differ from their defaults."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = vars(args).keys() - {"action", "argv"}
    return {name for name in flags if getattr(args, name) != parser.get_default(name)}


def run(args: argparse.Namespace) -> int:
    """Check the arguments, then perform one action; return the exit status."""
    check_arguments(args)
    if args.action == "manifest":
        return write_manifest(args)
    pod = (DryRunPod if args.dry_run else Pod)(
        args.name, args.zone, args.project, args.connect_flag, parse_variables(args.env)
    )
    try:
        return getattr(actions, f"do_{args.action}")(args, pod) or 0
    except GcloudError as error:
        print_error(error)
        if remedy := find_remedy(str(error)):
            print(f"# {remedy}", file=sys.stderr)
        return 1


def check_arguments(args: argparse.Namespace) -> None:
    """Check the arguments; add `request`, `variables` and `manifest` where the action needs them.

    Raises:
      ValueError: for arguments that are missing, superfluous or out of range.
    """
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", args.name):
        raise ValueError(
            f"--name {args.name!r}: gcloud accepts lower-case letters, digits and inner hyphens, "
            "starting with a letter"
        )
    if args.slices < 1 or args.tries < 1 or not 0 <= args.poll <= MAX_POLL:
        raise ValueError(
            f"--slices {args.slices} --poll {args.poll} --tries {args.tries}: expected at least 1, "
            f"0 to {MAX_POLL:g} and at least 1"
        )
    given = list_given(args)
    if args.action == "manifest":
        check_manifest(args, given)
        return
    refuse_manifest_flags(args.action, given)
    for name, users in ACTIONS_OF_FLAG.items():
        if name in given and args.action not in users:
            raise ValueError(f"pod {args.action} does not take --{name}, a flag of pod {users[0]}")
    if not args.zone:
        raise ValueError(f"pod {args.action} needs --zone, e.g. us-east5-a")
    if args.action in ("create", "run", "watch"):
        args.request = make_request(args)
    if args.action in ("run", "watch", "doctor"):
        args.argv = args.argv or (["doctor"] if args.action == "doctor" else [])
        if not args.argv:
            raise ValueError(
                f"pod {args.action}: give the verb to run after two hyphens, e.g. -- train CONFIG "
                "--workdir gs://bucket/run"
            )
        args.variables = build_environment(find_workdir(args.action, args.argv), args.env)
        check_verb(args.argv)
    elif args.action == "create" and args.argv:
        find_workdir(args.action, args.argv)
        check_verb(args.argv, looks_at_store=not args.dry_run)
    elif args.argv:
        raise ValueError(f"pod {args.action} takes no verb to run: {' '.join(args.argv)}")


def check_manifest(args: argparse.Namespace, given: set[str]) -> None:
    """Check the arguments of `manifest` and add the request as `manifest`.

    Args:
      given: the fields of `args` whose flags are given.

    Raises:
      ValueError: for arguments that are missing, superfluous or out of range.
    """
    if not args.argv:
        raise ValueError(
            "pod manifest: give the verb to run after two hyphens, e.g. -- train CONFIG "
            "--workdir gs://bucket/run"
        )
    is_shared = args.form in ON_SHARED_DISK
    verb, *words = args.argv
    commands, folder = [args.argv], None
    if verb == "sweep":
        folder, commands = list_sweep(words)
    for argv in commands:
        if not is_shared and verb != "doctor":
            find_workdir(args.action, argv)
    workdirs = [folder] if folder else list_workdirs(args.argv)
    args.manifest = make_manifest_request(args, given, workdirs[-1] if workdirs else None, commands)
    check_verb(args.argv, is_shared)


def make_request(args: argparse.Namespace) -> PodRequest:
    """Return the request for the pod.

    Raises:
      ValueError: if --type is missing, or no runtime is known for it.
    """
    if not args.type:
        raise ValueError(
            f"pod {args.action} needs --type, e.g. v5p-32 (run and watch request a preempted pod "
            "again)"
        )
    generation = args.type.rpartition("-")[0]
    if not args.runtime and generation not in RUNTIMES:
        hint = (
            "; TPU7x is available through GKE only, see docs/gke.md"
            if args.type.startswith("tpu7x")
            else ""
        )
        known = ", ".join(f"{name}-N" for name in RUNTIMES)
        raise ValueError(
            f"--type {args.type}: no runtime is known for it{suggest_type(args.type)}; known types "
            f"are {known}. Name a runtime with --runtime{hint}"
        )
    if generation in RUNTIMES:
        count_chips(args.type)
    return PodRequest(
        args.type,
        args.runtime or RUNTIMES[generation],
        args.spot,
        args.slices,
        tuple(args.create_flag),
    )


def find_workdir(action: str, argv: Sequence[str]) -> str | None:
    """Return the --workdir of the verb to run if it is in a bucket, else None."""
    found = list_workdirs(argv)
    if action != "doctor" and (not found or not found[-1].startswith("gs://")):
        given = f"--workdir {found[-1]}" if found else "no --workdir"
        raise ValueError(
            f"pod {action}: {given}; it must be gs://BUCKET/FOLDER, because the disks of a pod "
            "are deleted with it and its workers share none"
        )
    return found[-1] if found and found[-1].startswith("gs://") else None


def list_workdirs(argv: Sequence[str]) -> list[str]:
    """Return the values of --workdir of a verb; the last one counts."""
    found = []
    for argument, after in zip(argv, [*argv[1:], ""]):
        if argument.startswith("--workdir="):
            found.append(argument.partition("=")[2])
        elif argument == "--workdir":
            found.append(after)
    return found
