"""Remember in the user's cache which files have passed a check, so that it reads them once."""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from data.store.remote import find_cache


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
