"""Token stores in a bucket."""

import hashlib
import json
import os
import pathlib
import shutil

from data.store.atomic import open_scratch_folder
from data.store.writer import MANIFEST, verify_files


def find_cache(name: str) -> pathlib.Path:
    """Return the folder of this name in the user's cache."""
    return (
        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        / "cloze"
        / name
    )


def copy_here(remote, manifest: dict, files: dict) -> pathlib.Path:
    """Copy files of a generation of a remote store into the cache, unless they are there; files: {name: entry of the manifest}."""
    cache = find_cache("stores")
    described = f"{remote}\n{json.dumps(manifest, sort_keys=True)}\n{sorted(files)}"
    key = hashlib.sha256(described.encode()).hexdigest()[:24]
    if (cache / key / MANIFEST).exists():
        return cache / key
    cache.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(cache / key, exclusive=False) as scratch:
        copy = scratch / "store"
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            with (remote / name).open("rb") as source, open(copy / name, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        verify_files(copy, files)
        (copy / MANIFEST).write_text(json.dumps(manifest))  # the last: what has one is whole
        try:
            os.rename(copy, cache / key)
        except OSError:
            if not (cache / key / MANIFEST).exists():  # another process may have been first
                raise
    return cache / key
