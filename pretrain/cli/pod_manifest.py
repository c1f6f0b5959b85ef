"""pod manifest --for FORM: write the file with which another scheduler starts a run."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Sequence, Set
from typing import Any

from data.store.atomic import write_atomically
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.pod.manifests import FORMS
from pretrain.pod.manifests.manifest_request import PROGRAM, ManifestRequest, check_texts
from pretrain.settings.sweep_options import SweepOptions
from pretrain.settings.verb_options import add_options, read_options

# flag -> (type, help); each is None if it is not given.
FLAGS: dict[str, tuple[Any, str]] = {
    "image": (str, "image of the container, made from the Dockerfile"),
    "topology": (str, "chips along each side of a slice, e.g. 4x4x12 (default: by the type)"),
    "cluster": (str, "cluster of XPK"),
    "account": (str, "Kubernetes service account that may write to the bucket (default: cloze)"),
    "nodes": (int, "number of nodes (default: 1)"),
    "tasks": (int, "number of processes of each node (default: 1)"),
    "gpus": (int, "number of GPUs of each node; 0 for the CPU (default: 8)"),
    "time": (str, "time limit of the job (default: 24:00:00)"),
    "program": (shlex.split, f"words that precede the verb (default: {PROGRAM})"),
    "grace": (int, "seconds in which a run saves after SIGTERM (default: 120)"),
    "max-restarts": (int, "restarts after which the scheduler gives up (default: 20)"),
}
# form -> the flags that it takes in addition to FLAGS_OF_ALL_FORMS.
FLAGS_OF_FORM = {
    "jobset": "type topology slices spot image account grace max_restarts",
    "xpk": "type topology slices spot image cluster zone project grace max_restarts create_flag",
    "slurm": "nodes tasks gpus time program grace max_restarts create_flag",
    "skypilot": "type spot zone nodes program max_restarts",
}
FLAGS_OF_ALL_FORMS = {"name", "env", "form", "output", "overwrite"}
ON_SHARED_DISK = ("slurm",)  # forms whose workdir need not be in a bucket
OF_SWEEPS = ("jobset", "slurm")  # forms that start each member of a sweep


def add_manifest_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `pod manifest` to the parser of `pod`."""
    group = parser.add_argument_group("manifest", "flags of `pod manifest` alone")
    group.add_argument("--for", dest="form", choices=FORMS, help="form of the file")
    group.add_argument("--output", metavar="FILE", help="write to a file instead of the terminal")
    add_overwrite(group, "FILE")
    for name, (kind, text) in FLAGS.items():
        group.add_argument(f"--{name}", type=kind, help=text)


def to_field(flag: str) -> str:
    """Return the field of a flag, such as max_restarts."""
    return flag.replace("-", "_")


def to_flag(field: str) -> str:
    """Return the flag of a field, such as --max-restarts."""
    return "--for" if field == "form" else f"--{field.replace('_', '-')}"


def refuse_manifest_flags(action: str, given: Set[str]) -> None:
    """Raise ValueError if a flag of `pod manifest` is given to another action."""
    refused = given & {"form", "output", "overwrite", *map(to_field, FLAGS)}
    if refused:
        flags = ", ".join(map(to_flag, sorted(refused)))
        raise ValueError(f"pod {action} does not take {flags}: for `pod manifest` only")


def make_manifest_request(
    args: argparse.Namespace,
    given: Set[str],
    workdir: str | None,
    commands: Sequence[Sequence[str]],
) -> ManifestRequest:
    """Return the request that the arguments describe.

    Args:
      given: the fields of `args` whose flags are given.
      workdir: --workdir of the verb, or the folder of a sweep.
      commands: what trains each member of a sweep; one command for any other verb.

    Raises:
      ValueError: if a flag is missing, superfluous or out of range.
    """
    if not args.form:
        raise ValueError(f"pod manifest needs --for, one of {', '.join(FORMS)}")
    given = given - FLAGS_OF_ALL_FORMS
    if superfluous := given - set(FLAGS_OF_FORM[args.form].split()):
        flags = ", ".join(map(to_flag, sorted(superfluous)))
        raise ValueError(f"pod manifest --for {args.form} does not take {flags}")
    for name, least in (("nodes", 1), ("tasks", 1), ("gpus", 0), ("grace", 1), ("max_restarts", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"{to_flag(name)} {value}: expected at least {least}")
    values: dict[str, Any] = {name: getattr(args, name) for name in given}
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    if flags := values.pop("create_flag", None):
        values["flags"] = flags
    request = ManifestRequest(
        args.name, tuple(args.argv), workdir=workdir, variables=tuple(args.env), **values
    )
    if args.argv[0] == "sweep":
        if args.form not in OF_SWEEPS:
            raise ValueError(
                f"pod manifest --for {args.form} starts one run: a sweep needs --for "
                f"{' or '.join(OF_SWEEPS)}"
            )
        request = dataclasses.replace(request, members=tuple(map(tuple, commands)))
    check_texts(request)
    return request


def list_sweep(argv: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Return (folder, the command that trains each member) of the arguments of `sweep`.

    Raises:
      SystemExit: for invalid arguments, after printing why.
      ValueError: they vary nothing, or choose what only a sweep on this machine does.
    """
    parser = argparse.ArgumentParser(prog="pod manifest -- sweep", allow_abbrev=False)
    add_options(parser, SweepOptions)
    given = parser.parse_intermixed_args(argv)
    if given.export:
        raise ValueError("--export: once all members have finished, export the best of them")
    options = read_options(SweepOptions, argparse.Namespace(**vars(given) | {"jobs": 0}))
    return options.folder, [*options.list_commands(options.list_members()).values()]


def write_manifest(args: argparse.Namespace) -> int:
    """Print the manifest or write it to a file; return the exit status."""
    text = FORMS[args.form](args.manifest)
    if args.output:
        check_output_file(args.output, args.overwrite)
        write_atomically(args.output, text)
        print(f"# wrote {args.output}")
    else:
        print(text, end="")
    return 0
