"""pod manifest --for FORM: write the file with which another scheduler starts a run."""

from __future__ import annotations

import argparse
import pathlib
import shlex
from typing import Any

from pretrain.pod.manifests import FORMS
from pretrain.pod.manifests.manifest_request import ManifestRequest, check_texts

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
    "program": (shlex.split, "words that precede the verb (default: .venv/bin/cloze)"),
    "grace": (int, "seconds in which a run saves after SIGTERM (default: 120)"),
    "max-restarts": (int, "restarts after which the scheduler gives up (default: 20)"),
}
# form -> the flags that it takes, besides --name, --env and --output.
FLAGS_OF_FORM = {
    "jobset": "type topology slices spot image account grace max_restarts",
    "xpk": "type topology slices spot image cluster zone project grace max_restarts create_flag",
    "slurm": "nodes tasks gpus time program grace max_restarts create_flag",
    "skypilot": "type spot zone nodes program",
}
SHARED_FLAGS = ("type", "slices", "spot", "zone", "project", "create_flag")
ON_SHARED_DISK = ("slurm",)  # forms whose workdir need not be in a bucket


def add_manifest_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `pod manifest` to the parser of `pod`."""
    group = parser.add_argument_group("manifest", "flags of `pod manifest` alone")
    group.add_argument("--for", dest="form", choices=FORMS, help="form of the file")
    group.add_argument("--output", metavar="FILE", help="write to a file instead of the terminal")
    for name, (kind, text) in FLAGS.items():
        group.add_argument(f"--{name}", type=kind, help=text)


def list_given(args: argparse.Namespace) -> set[str]:
    """Return the flags of FLAGS and SHARED_FLAGS that differ from their defaults."""
    given = {name for name in map(to_field, FLAGS) if getattr(args, name) is not None}
    given |= {name for name in SHARED_FLAGS if getattr(args, name)}
    return given - ({"slices"} if args.slices == 1 else set())


def to_field(flag: str) -> str:
    """Return the field of a flag, such as max_restarts."""
    return flag.replace("-", "_")


def to_flag(field: str) -> str:
    """Return the flag of a field, such as --max-restarts."""
    return f"--{field.replace('_', '-')}"


def refuse_manifest_flags(args: argparse.Namespace) -> None:
    """Raise ValueError if a flag of `pod manifest` is given to another action."""
    given = sorted(list_given(args) - set(SHARED_FLAGS))
    given += [name for name, value in (("for", args.form), ("output", args.output)) if value]
    if given:
        flags = ", ".join(map(to_flag, given))
        raise ValueError(f"pod {args.action} does not take {flags}: for `pod manifest` only")


def make_manifest_request(args: argparse.Namespace, workdir: str | None) -> ManifestRequest:
    """Return the request that the arguments describe.

    Args:
      workdir: that of the verb.

    Raises:
      ValueError: if a flag is missing, superfluous or out of range.
    """
    if not args.form:
        raise ValueError(f"pod manifest needs --for, one of {', '.join(FORMS)}")
    allowed = set(FLAGS_OF_FORM[args.form].split())
    if superfluous := sorted(list_given(args) - allowed):
        flags = ", ".join(map(to_flag, superfluous))
        raise ValueError(f"pod manifest --for {args.form} does not take {flags}")
    for name, least in (("nodes", 1), ("tasks", 1), ("gpus", 0), ("grace", 1), ("max_restarts", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"{to_flag(name)} {value}: expected at least {least}")
    values: dict[str, Any] = {name: getattr(args, name) for name in list_given(args)}
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    if flags := values.pop("create_flag", None):
        values["flags"] = flags
    request = ManifestRequest(
        args.name, tuple(args.argv), workdir=workdir, variables=tuple(args.env), **values
    )
    check_texts(request)
    return request


def write_manifest(args: argparse.Namespace) -> int:
    """Print the manifest or write it to a file; return the exit status."""
    text = FORMS[args.form](args.manifest)
    if args.output:
        pathlib.Path(args.output).write_text(text, encoding="utf-8")
        print(f"# wrote {args.output}")
    else:
        print(text, end="")
    return 0
