"""Resolve a file name, a folder or a pattern, local or remote, to files.

The folders of token stores below a folder are left out: their vocabularies are no text, and a store
that is within its own source would change it.
"""

import functools
import glob
import pathlib
import stat
from collections.abc import Iterator
from typing import Any

from data.corpus.buckets import check_bucket
from data.corpus.other_formats import explain_other_format
from data.corpus.paths import as_path, is_remote
from data.corpus.untrusted import check_regular, read_bounded_json
from data.source import MANIFEST_FILE

STATE_FILE, SPLITS_FILE = "state.json", "dataset_dict.json"  # of `Dataset.save_to_disk`
STORE_ENTRIES = {"version", "vocabulary", "splits", "sources"}  # of the manifest of a store


def list_files(
    name: str, suffixes: tuple[str, ...] | None, remedy: str
) -> tuple[list[pathlib.Path], tuple[str, ...]]:
    """Return the files of a file name, folder or pattern, in order, and the files ignored there.

    Args:
      suffixes: ends of the names of the files that are read; None: of any file.

    Raises:
      FileNotFoundError: if there is no such file or folder.
      ValueError: if a file has another name, or is a pipe or a device; in a folder, these are
        ignored.
    """
    check_bucket(name)
    path, wanted = as_path(name), suffixes or ("",)
    if glob.has_magic(name) and not path.exists():
        matches = sorted(_glob_files(name), key=str)
        return _divide_files(matches, wanted)
    if not path.exists():
        raise FileNotFoundError(f"{name}: no such file or folder")
    if path.is_dir():
        entries = _list_saved_dataset(path) or sorted(_walk_files(path), key=str)
        return _divide_files(entries, wanted)
    if not path.name.endswith(wanted):
        ends = ", ".join(end for end in wanted if end.count(".") == 1)  # .gz is known by itself
        raise ValueError(
            f"{name}: a source ends in {ends}, or is a folder, builtin or tfds:NAME; "
            f"{explain_other_format(name) or remedy}"
        )
    if not is_remote(path):
        check_regular(path, path.stat())
    return [path], ()


def _divide_files(
    paths: list[pathlib.Path], wanted: tuple[str, ...]
) -> tuple[list[pathlib.Path], tuple[str, ...]]:
    """Return the files whose names end as wanted, and the other ones, pipes and devices among them.

    A link to nothing remains, so that reading it is an error.
    """
    files = [path for path in paths if path.name.endswith(wanted) and not _is_endless(path)]
    read = set(files)
    return files, tuple(str(path) for path in paths if path not in read)


def _list_saved_dataset(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files, in order, of a folder that `Dataset.save_to_disk` of `datasets` wrote.

    Returns [] for any other folder. Raises ValueError for the folder of several splits.
    """
    if (several := folder / SPLITS_FILE).is_file():
        splits = read_bounded_json(several)
        names = splits.get("splits") if isinstance(splits, dict) else None
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            raise ValueError(
                f"{folder}: a dataset with the splits {', '.join(names)[:300]}; name one of them: "
                f"{folder / names[0]}"
            )
    if not (state := folder / STATE_FILE).is_file():
        return []
    content = read_bounded_json(state)
    files = content.get("_data_files") if isinstance(content, dict) else None
    if not isinstance(files, list):
        return []  # a file of another program
    paths = []
    for file in files:
        name = file.get("filename") if isinstance(file, dict) else None
        if not isinstance(name, str) or name != pathlib.PurePath(name).name:
            raise ValueError(f"{state}: {name!r:.80} is not the name of a file beside it")
        if not (path := folder / name).exists():
            raise FileNotFoundError(f"{path}: no such file, but {state} names it")
        paths.append(path)
    return paths


def _is_endless(path: pathlib.Path) -> bool:
    """Return whether there is something local that is neither a file nor a folder."""
    if is_remote(path) or not path.exists():
        return False
    return not stat.S_ISREG(path.stat().st_mode)


def _is_store(folder: pathlib.Path) -> bool:
    """Return whether a local folder is a token store."""
    path = folder / MANIFEST_FILE
    if is_remote(folder) or not path.is_file():
        return False
    try:
        manifest = read_bounded_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.keys() >= STORE_ENTRIES


def _glob_files(pattern: str) -> Iterator[pathlib.Path]:
    """Yield the files that match a pattern and are not hidden, nor in a store.

    `**` does not follow links, which may form circles.
    """
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder = as_path("/".join(parts[:first]) or ("/" if first else "."))
    is_store = functools.cache(_is_store)
    for match in folder.glob("/".join(parts[first:])):
        below = match.relative_to(folder).parts
        if match.is_dir() or any(part.startswith(".") for part in below):
            continue
        if not any(is_store(folder.joinpath(*below[:i])) for i in range(1, len(below))):
            yield match


def _walk_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield all files below a folder that are not hidden, nor in a store.

    Links to folders are not followed.
    """
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif is_remote(path) or not (path.is_symlink() or _is_store(path)):
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
