"""The files of an exported folder that are uploaded: those that an export writes, and no other."""

import os
import pathlib
import re
from collections.abc import Iterable

from data.members import call_later
from pretrain.convert.export_folder import (
    ADAPTER_CONFIG,
    ADAPTER_FILES,
    EXPORT_FILES,
    JAX_FILES,
    SHARD,
    SUBFOLDERS,
)
from pretrain.convert.safe_folder import CONFIG, FolderError, FolderTensors, read_config

open_adapter = call_later("pretrain.convert.adapter_folder:open_adapter")

# What Orbax writes below params/, and the modules below models/.
PARAMS = re.compile(
    r"params/(?:_METADATA|_CHECKPOINT_METADATA|_sharding|array_metadatas/process_\d+"
    r"|(?:ocdbt\.process_\d+/)?(?:manifest\.ocdbt|d/[0-9a-f]{32}))"
)
MODULE = re.compile(r"models/(?:\w+/)*\w+\.py", re.ASCII)
# These stay here: Orbax writes the path of the folder into the first, and Python the others.
LOCAL = re.compile(r"params/commit_success\.txt|(?:.+/)?__pycache__/.+")
# Endings of weights. Next to an export's weights they would belong to another model.
WEIGHTS = (
    *(".safetensors", ".bin", ".h5", ".hdf5", ".msgpack", ".ckpt", ".pt", ".pth", ".gguf"),
    *(".onnx", ".tflite", ".npz", ".ocdbt"),
)


def list_export_files(folder: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Return {name in a repository: path} of the files of an export.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: the folder has a file that no export writes, or a link, or is no export.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; `export` writes one")
    paths = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = pathlib.Path(root, name)
            shown = path.relative_to(folder).as_posix()
            if path.is_symlink():
                raise FolderError(f"{path}: is a link, which no export writes; nothing is uploaded")
            if name in names and not LOCAL.fullmatch(shown):
                paths[shown] = path
    kind = find_kind(paths)
    if foreign := sorted(name for name in paths if not is_export_file(name, kind)):
        raise FolderError(
            f"{folder}: has {foreign[0]}, which no export writes; nothing is uploaded. Remove it, "
            "or write the model to a new folder with `export`"
        )
    if other := next((path for path in paths.values() if not path.is_file()), None):
        raise FolderError(f"{other}: is no regular file; nothing is uploaded")
    check_export(folder, paths, kind)
    return dict(sorted(paths.items()))


def find_kind(names: Iterable[str]) -> str:
    """Return what the files of a folder or a repository are: "jax", "peft" or "transformers"."""
    names = set(names)
    if ADAPTER_CONFIG in names:
        return "peft"
    return "jax" if JAX_FILES <= {name.split("/")[0] for name in names} else "transformers"


def is_export_file(name: str, kind: str) -> bool:
    """Return whether an export of a kind, see `find_kind`, writes a file of this name."""
    if kind == "peft":
        return name in ADAPTER_FILES
    first, _, rest = name.partition("/")
    if kind == "jax" and (name in JAX_FILES or PARAMS.fullmatch(name) or MODULE.fullmatch(name)):
        return True
    own = rest if first in SUBFOLDERS else name
    return own in EXPORT_FILES or bool(SHARD.fullmatch(own))


def check_export(folder: pathlib.Path, names: Iterable[str], kind: str) -> None:
    """Raise FolderError if the files of an export are not whole."""
    if kind == "peft":
        open_adapter(folder)
        return
    if kind == "jax":
        if CONFIG not in names:
            raise FolderError(f"{folder}: has no {CONFIG}, so it is no export")
        return
    subfolders = {name.partition("/")[0] for name in names if "/" in name}
    for subfolder in ("", *sorted(subfolders)):
        read_config(folder / subfolder)
        FolderTensors(folder / subfolder)


def list_stale_files(remote: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the files of an earlier export in a repository that the new one has not.

    Without their removal an old index or tokenizer would be read with the new weights.
    """
    remote = set(remote)
    kind = find_kind(remote)
    return sorted(name for name in remote - set(names) if is_export_file(name, kind))


def list_foreign_weights(remote: Iterable[str]) -> list[str]:
    """Return the files of weights in a repository that no export has written."""
    remote = set(remote)
    kind = find_kind(remote)
    return sorted(
        name for name in remote if name.lower().endswith(WEIGHTS) and not is_export_file(name, kind)
    )
