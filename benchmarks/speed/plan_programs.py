"""Compiled programs of plans, in a folder: a change of what is counted compiles nothing.

A program's file is named after the hash of what went to the compiler, the TPU slice and the
compiler's versions.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Mapping

from benchmarks.harness import CACHE
from pretrain.plan.compile import CompiledProgram

FOLDER = CACHE / "plans"


def find_file(
    folder: pathlib.Path, program: str, topology: str, versions: Mapping[str, str]
) -> pathlib.Path:
    """Return the path of a program's file.

    Args:
      program: of `hash_program`; slices of different chips may have the same.
      topology: TPU slice.
      versions: {package: version} of the compiler.
    """
    compiler = json.dumps([topology, dict(versions)], sort_keys=True)
    return folder / f"{program}-{hashlib.sha256(compiler.encode()).hexdigest()[:8]}.json.gz"


def read_program(path: pathlib.Path) -> CompiledProgram | None:
    """Return the program of a file; None if there is no such file.

    Raises:
      ValueError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            fields = json.load(file)
        return CompiledProgram(**fields | {"warnings": tuple(fields["warnings"])})
    except (OSError, EOFError, ValueError, TypeError, KeyError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it") from error


def write_program(path: pathlib.Path, program: CompiledProgram) -> None:
    """Replace the file at `path` by a program, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with gzip.open(partial, "wt", encoding="utf-8", compresslevel=6) as file:
        json.dump(program._asdict(), file)
    os.replace(partial, path)
