"""Check the verb that a pod is to run, before there is a pod."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

from pretrain.cli.verbs import VERBS, describe_unknown, parse_arguments
from pretrain.host.hiding import ROOT
from pretrain.host.library_messages import silence_libraries
from pretrain.host.terminal import print_error

# Packages that a configuration needs. A laptop that only runs `pod` lacks them.
PACKAGES = ("numpy", "etils")
# The Python of ./launch.sh, which has them as soon as any other verb has run.
ENVIRONMENT_PYTHON = pathlib.Path(__file__).parents[2] / ".venv" / "bin" / "python"
# First argument of this module as a program.
SHARED_DISK, STORE_TOO = "shared", "store"
REMOTE_FOLDER = re.compile(r"gs://[a-z0-9][a-z0-9._-]+[a-z0-9]/+[^/].*")


def check_verb(argv: Sequence[str], is_shared: bool = False, looks_at_store: bool = False) -> None:
    """Check a verb and its arguments as a worker does when it starts, without running it.

    Where this Python lacks the packages that a configuration needs, .venv's checks; if that
    has none, a notice says that nothing is checked.

    Args:
      is_shared: the workers share a disk, so that a path need not be in a bucket.

    Raises:
      ValueError: if the verb does not exist, its configuration is invalid, or does not fit the
        store.
      OSError: if there is no store, or no such bucket.
      SystemExit: if the arguments are invalid, after printing why.
    """
    if all(importlib.util.find_spec(name) for name in PACKAGES):
        check_here(argv, is_shared, looks_at_store)
    elif has_packages(ENVIRONMENT_PYTHON):
        how = SHARED_DISK if is_shared else STORE_TOO if looks_at_store else "-"
        # -P: no file of the current folder is executed.
        words = [ENVIRONMENT_PYTHON, "-P", "-m", __name__, how, *argv]
        done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(ROOT)})
        if done.returncode:
            raise SystemExit(done.returncode)
    else:
        print(
            f"# not checked here: {' '.join(argv)}. This Python has no {' and no '.join(PACKAGES)}"
            f"; `./launch.sh describe CONFIG path=value ...` installs them and checks a "
            "configuration",
            file=sys.stderr,
        )


def has_packages(python: pathlib.Path) -> bool:
    """Return whether another Python exists and has the packages that a configuration needs."""
    if not python.exists():
        return False
    words = [python, "-P", "-c", f"import {', '.join(PACKAGES)}"]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except OSError:  # it cannot be run
        return False


def check_here(argv: Sequence[str], is_shared: bool = False, looks_at_store: bool = False) -> None:
    """Check a verb and its arguments by this process; see `check_verb`."""
    verb, *rest = argv
    if verb not in VERBS:
        raise ValueError(describe_unknown(verb))
    args = parse_arguments(verb, rest)
    if verb == "train":
        check_training(args, is_shared, looks_at_store)
    if verb == "sweep":
        from pretrain.cli.pod_manifest import list_sweep

        for _, *words in list_sweep(rest)[1]:
            check_training(parse_arguments("train", words), is_shared)


def check_training(
    args: argparse.Namespace, is_shared: bool = False, looks_at_store: bool = False
) -> None:
    """Check the arguments of `train`.

    Raises:
      ValueError: if the configuration, the workdir or the store is invalid on a pod.
      OSError: if there is no store, or no such bucket.
    """
    from pretrain.config import load

    run = load(args.config, args.overrides)
    store = run.data.store
    if is_shared:
        return
    if not is_remote_folder(args.workdir):
        raise ValueError(f"--workdir {args.workdir}: expected gs://BUCKET/FOLDER")
    if not (is_remote_folder(store) or re.fullmatch(r"/[^:]*", store)):
        raise ValueError(
            f"data.store={store}: expected gs://BUCKET/FOLDER, or the absolute path of a folder "
            "that every worker has. A store on this machine goes to the bucket by `gcloud storage "
            "cp -r STORE gs://BUCKET/FOLDER`"
        )
    if looks_at_store:
        from pretrain.cli.store_check import check_store

        check_store(run, args.config, args.overrides, args.workdir)


def is_remote_folder(path: str) -> bool:
    """Return whether a path is a folder in a bucket, such as gs://BUCKET/FOLDER."""
    return REMOTE_FOLDER.fullmatch(path) is not None


if __name__ == "__main__":
    silence_libraries()
    try:
        check_here(sys.argv[2:], sys.argv[1] == SHARED_DISK, sys.argv[1] == STORE_TOO)
    except (ValueError, OSError) as error:
        print_error(error)
        sys.exit(2)
