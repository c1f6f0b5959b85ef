"""Read and check the manifest of a token store."""

import json
import pathlib
import re
from typing import Any

from data.store.generations import GENERATION_NAME
from data.store.writer import MANIFEST_FILE, STORE_VERSION

FILE_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def is_file_list(files: Any) -> bool:
    """Return whether a value is {name in a generation: {"bytes": int, "crc32c": str}}."""
    return isinstance(files, dict) and all(
        FILE_NAME.fullmatch(name)
        and isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("crc32c"), str)
        for name, entry in files.items()
    )


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Return the manifest of the store in a folder.

    Raises:
      FileNotFoundError: if the folder has no manifest.
      ValueError: if the manifest is broken or of another version.
    """
    path = folder / MANIFEST_FILE
    if not path.exists():
        reason = "no such folder" if not folder.exists() else f"no {MANIFEST_FILE} in it"
        raise FileNotFoundError(
            f"{folder} is not a token store ({reason}); "
            f"`prepare SOURCE... --output {folder}` writes one"
        )
    try:
        manifest = json.loads(path.read_text())
        version = manifest["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
    if version != STORE_VERSION:
        raise ValueError(
            f"{path}: version {version} of the store, this program reads {STORE_VERSION}: "
            "prepare it again (--overwrite)"
        )
    files = manifest.get("files")
    if not GENERATION_NAME.fullmatch(str(manifest.get("generation"))) or not is_file_list(files):
        raise ValueError(f"{path} is broken: it names no generation, or files outside of it")
    return manifest
