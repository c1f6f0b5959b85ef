"""Resolve a file name, a folder or a pattern, local or remote, to files."""

import glob
import pathlib
from collections.abc import Iterator
from typing import Any

from data.corpus.buckets import check_bucket
from data.corpus.paths import as_path, is_remote


def list_files(
    name: str, suffixes: tuple[str, ...] | None, remedy: str
) -> tuple[list[pathlib.Path], tuple[str, ...]]:
    """Return the files of a file name, folder or pattern, in order, and the files ignored there.

    Args:
      name: the name on the command line.
      suffixes: ends of the names of the files that are read; None: of any file.
      remedy: what the error for a file with another name proposes.
    """
    check_bucket(name)
    path, wanted = as_path(name), suffixes or ("",)
    if glob.has_magic(name) and not path.exists():
        matches = sorted(_glob_files(name), key=str)
        files = [match for match in matches if str(match).endswith(wanted)]
        return files, tuple(str(match) for match in matches if match not in files)
    if not path.exists():
        raise FileNotFoundError(f"{name}: no such file or folder")
    if path.is_dir():
        entries = sorted(_walk_files(path), key=str)
        files = [file for file in entries if file.name.endswith(wanted)]
        return files, tuple(str(file) for file in entries if not file.name.endswith(wanted))
    if not path.name.endswith(wanted):
        raise ValueError(
            f"{name}: a source ends in {', '.join(wanted)}, or is a folder, builtin or tfds:NAME; "
            f"{remedy}"
        )
    return [path], ()


def _glob_files(pattern: str) -> Iterator[pathlib.Path]:
    """Yield the files that match a pattern and are not hidden.

    `**` does not follow links, which may form circles.
    """
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder = as_path("/".join(parts[:first]) or ("/" if first else "."))
    for match in folder.glob("/".join(parts[first:])):
        if not match.is_dir() and not any(
            part.startswith(".") for part in match.relative_to(folder).parts
        ):
            yield match


def _walk_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield all files below a folder that are not hidden; links to folders are not followed."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif is_remote(path) or not path.is_symlink():
            yield from _walk_files(path)


def get_file_size(path: pathlib.Path) -> int:
    """Return the number of bytes of a local or remote file."""
    return int(get_stat_size(path.stat()))


def get_stat_size(stat: Any) -> int:
    """Return the bytes in a stat result of os or epath."""
    return stat.st_size if hasattr(stat, "st_size") else stat.length


def get_stat_mtime(stat: Any) -> int:
    """Return the modification time in a stat result of os or epath."""
    return stat.st_mtime_ns if hasattr(stat, "st_mtime_ns") else int(stat.mtime)
