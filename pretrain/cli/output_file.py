"""The check of an --output file, with the standard library alone, since `pod` needs no other."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
from collections.abc import Iterable

from data.corpus.paths import as_path, is_remote

# What a run and a store have in their folder, below the file whose keys prove what the folder is.
RUN_KEYS, STORE_KEYS = {"format", "model", "data"}, {"version", "generation", "vocabulary", "files"}
RUN_NAMES = {
    *("config.json", "metrics.jsonl", "origin.json", "source.json", "left_out.json", "pinned"),
    *("goodput.json", "environment.jsonl", "samples.jsonl", "lease", "checkpoints", "damaged"),
    *("vocabulary", "store", "tensorboard", "compiled"),
}
STORE_NAMES = re.compile(r"manifest\.json|[0-9a-f]{12}(-\d{1,4})?")
MAX_DEPTH = 4  # folders above a file that are looked at
MAX_BYTES = 64 << 20


def add_overwrite(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the flag --overwrite, which replaces `what`."""
    parser.add_argument("--overwrite", action="store_true", help=f"replace {what}")


def check_output_file(
    output: str | os.PathLike[str],
    overwrite: bool,
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    option: str = "--output",
) -> pathlib.Path:
    """Return the path of an output, if a file may be written there.

    A pipe or a device, such as /dev/stdout, is written to and not replaced.

    Args:
      inputs: files that the command reads, and never replaces; None for one that was not given.

    Raises:
      FileExistsError: if there is a file, and `overwrite` is not given.
      ValueError: if it is an input, or a file of a run or a store.
      IsADirectoryError: if it is a folder.
    """
    path = as_path(output)
    for given in filter(None, inputs):
        if _is_same(output, given):
            raise ValueError(
                f"{option} {output} is what the command reads ({given}), which is never replaced; "
                f"name another {option}"
            )
    if path.is_dir():
        raise IsADirectoryError(f"{option} {output} is a folder; name a file")
    if not path.exists() or not (is_remote(output) or path.is_file()):
        return path
    if not overwrite:
        raise FileExistsError(f"{output} exists; name another {option}, or add --overwrite")
    if not is_remote(output) and (owner := _find_owner(path)):
        raise ValueError(
            f"{option} {output} is a file of {owner}, which is never replaced; name another "
            f"{option}"
        )
    return path


def _is_same(path: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths lead to the same file, whatever their names and links."""
    if is_remote(path) or is_remote(other):
        return str(path) == str(other)
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def _find_owner(path: pathlib.Path) -> pathlib.Path | None:
    """Return the folder of a run or a store that has written a file; None for any other file."""
    path = pathlib.Path(os.path.realpath(path))
    for folder in path.parents[:MAX_DEPTH]:
        name = path.relative_to(folder).parts[0]
        if name in RUN_NAMES and _has_keys(folder / "config.json", RUN_KEYS):
            return folder
        if STORE_NAMES.fullmatch(name) and _has_keys(folder / "manifest.json", STORE_KEYS):
            return folder
    return None


def _has_keys(path: pathlib.Path, keys: set[str]) -> bool:
    """Return whether a file is a JSON object with these keys."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return False
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and keys <= content.keys()
