"""What this machine keeps of stores in the user's cache: copies of remote files, passed checks."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from data.source import MANIFEST_FILE
from data.store.atomic import open_scratch_folder
from data.store.checksums import verify_files


def find_cache(name: str) -> pathlib.Path:
    """Return a folder of this name in the user's cache, $XDG_CACHE_HOME/cloze."""
    root = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return root / "cloze" / name


def copy_to_cache(
    remote: pathlib.Path, manifest: dict[str, Any], files: dict[str, dict[str, Any]]
) -> pathlib.Path:
    """Copy files of a remote store to the cache, unless it has them, and return their folder.

    Args:
      remote: folder of one generation of the store (data/store/generations.py).
      files: {name: entry of the manifest} of the files to copy.
    """
    cache = find_cache("stores")
    identity = f"{remote}\n{json.dumps(manifest, sort_keys=True)}\n{sorted(files)}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:24]
    if (cache / key / MANIFEST_FILE).exists():
        return cache / key
    cache.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(cache / key, exclusive=False) as scratch:
        copy = scratch / "store"
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            with (remote / name).open("rb") as source, open(copy / name, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        verify_files(copy, files)
        # The manifest is written last: a folder with a manifest is complete.
        (copy / MANIFEST_FILE).write_text(json.dumps(manifest))
        try:
            os.rename(copy, cache / key)
        except OSError:
            if not (cache / key / MANIFEST_FILE).exists():  # another process may have been first
                raise
    return cache / key


def check_once(
    kind: str,
    folder: pathlib.Path,
    names: Iterable[str],
    facts: Any,
    check: Callable[[], None],
) -> None:
    """Run a check that raises an error, unless these files have passed it.

    The result is cached for the path, sizes, inodes and modification times of the files.

    Args:
      facts: what else the result depends on, as JSON.
    """
    stats = [(folder / name).stat() for name in sorted(names)]
    state = [str(folder.resolve()), facts]
    state += [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:32]
    # Without a cache, or a home for it, all files are read each time.
    with contextlib.suppress(OSError, RuntimeError):
        if (find_cache(kind) / digest).exists():
            return
    check()
    with contextlib.suppress(OSError, RuntimeError):
        mark = find_cache(kind) / digest
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
