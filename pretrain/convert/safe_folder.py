"""Safe reading of an untrusted Hugging Face folder.

Only `.safetensors` files are read: a header and bytes, which contain no code. Pickles are never
opened.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from safetensors import SafetensorError, safe_open

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FRACTIONS = ("F32", "F16", "BF16")  # float32 holds each of their values exactly
FORMATS = (*FRACTIONS, "I64", "I32", "I16", "I8", "U8", "BOOL")
UNSAFE = (
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"),
    *("tf_model.h5", "flax_model.msgpack"),
)
CONVERT_HINT = (
    "Cloze reads .safetensors files only, since a file of another kind may run code when it is "
    'opened. If you trust it, convert it once: python -c "import transformers as t; '
    "t.AutoModelForPreTraining.from_pretrained('IN').save_pretrained('OUT')\""
)


class FolderError(ValueError):
    """A folder without a sound model; the message names the file and the remedy."""


def read_config(
    folder: str | os.PathLike[str], report: Callable[[str], Any] = print
) -> dict[str, Any]:
    """Return the content of the `config.json` of a folder.

    Code that the file refers to (`auto_map`) is never run; `report` receives a line about it.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: the file is missing or is not a JSON object.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; import reads a local folder with {CONFIG} and {WEIGHTS}"
        )
    config = read_json(folder / CONFIG, missing="is this a model that transformers saved?")
    if config.get("auto_map"):
        names = (
            sorted(config["auto_map"])
            if isinstance(config["auto_map"], dict)
            else [str(config["auto_map"])]
        )
        report(
            f"{folder / CONFIG}: auto_map names code of its own ({', '.join(names)}), which Cloze "
            "never runs"
        )
    return config


def read_json(path: pathlib.Path, missing: str = "it belongs to the model") -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises FolderError, which names the file; `missing` is its explanation of an absent file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(f"{path.parent}: no {path.name}: {missing}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FolderError(f"{path}: not JSON ({error}); was it fetched whole?") from error
    if not isinstance(content, dict):
        raise FolderError(f"{path}: holds {type(content).__name__}, expected a JSON object")
    return content


class FolderTensors(Mapping[str, np.ndarray]):
    """The tensors of a folder by name; each is read when it is accessed, floats as float32.

    The constructor raises FolderError if a file is missing, cut off or damaged, if the index and
    the files disagree, or if a tensor has a format that float32 does not contain. So later reads do
    not fail half-way.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = pathlib.Path(folder)
        index = folder / INDEX
        self._files = _locate_indexed(index) if index.exists() else _locate_single(folder)
        self._formats = {}
        for path in sorted(set(self._files.values())):
            with _open_tensors(path) as file:
                self._formats |= {
                    name: file.get_slice(name).get_dtype()
                    for name in file.keys()  # noqa: SIM118 - it has keys, but no __iter__
                    if self._files.get(name) == path
                }
        for name, stored in self._formats.items():
            if stored not in FORMATS:
                raise FolderError(
                    f"{self._files[name]}: {name} is stored as {stored}; Cloze reads "
                    f"{', '.join(FORMATS)}"
                )

    def __getitem__(self, name: str) -> np.ndarray:
        path = self._files[name]
        with _open_tensors(path) as file:
            array = file.get_tensor(name)
        return array.astype(np.float32, copy=False) if self._formats[name] in FRACTIONS else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def list_formats(self) -> tuple[str, ...]:
        """Return the floating-point formats of the tensors, such as ("BF16", "F32")."""
        return tuple(sorted(set(self._formats.values()) & set(FRACTIONS)))


class JoinedTensors(Mapping[str, np.ndarray]):
    """The tensors of a folder and of its subfolders, which are named SUBFOLDER/NAME."""

    def __init__(self, folders: Mapping[str, FolderTensors]) -> None:
        """Join the tensors of {subfolder: Tensors}; the folder itself has the name ""."""
        self._folders = folders
        self._places = {
            f"{folder}/{name}" if folder else name: (folder, name)
            for folder, tensors in folders.items()
            for name in tensors
        }

    def __getitem__(self, name: str) -> np.ndarray:
        folder, inner = self._places[name]
        return self._folders[folder][inner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def list_formats(self) -> tuple[str, ...]:
        """Return the floating-point formats of all tensors, as `FolderTensors.list_formats`."""
        formats = {name for tensors in self._folders.values() for name in tensors.list_formats()}
        return tuple(sorted(formats))


def _locate_single(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return {tensor: path} of a model in one file."""
    path = folder / WEIGHTS
    if not path.is_file():
        unsafe = [name for name in UNSAFE if (folder / name).exists()]
        if unsafe:
            raise FolderError(f"{folder}: has {unsafe[0]} but no {WEIGHTS}. {CONVERT_HINT}")
        others = sorted(other.name for other in folder.glob("*.safetensors"))
        hint = f"; it has {', '.join(others[:4])} and no {INDEX}" if others else ""
        raise FolderError(f"{folder}: no {WEIGHTS}{hint}")
    return dict.fromkeys(_list_names(path), path)


def _locate_indexed(index: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return {tensor: path} of a sharded model; the index may name files of its own folder only."""
    places = read_json(index).get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(file, str) for file in places.values())
    ):
        raise FolderError(f"{index}: weight_map is not an object of tensor: file")
    stored = {}
    for file in sorted(set(places.values())):
        if (
            pathlib.PurePath(file).name != file
            or "\\" in file
            or "\0" in file
            or not file.endswith(".safetensors")
        ):
            raise FolderError(
                f"{index}: names {file!r}; only .safetensors files next to the index are read"
            )
        path = index.parent / file
        if not path.is_file():
            raise FolderError(
                f"{path}: missing, though {index.name} names it; fetch the model again"
            )
        stored[file] = _list_names(path)
    for name, file in places.items():
        if name not in stored[file]:
            raise FolderError(
                f"{index.parent / file}: has no tensor {name}, though {index.name} says so; fetch "
                "it again"
            )
    return {name: index.parent / file for name, file in places.items()}


def _list_names(path: pathlib.Path) -> set[str]:
    with _open_tensors(path) as file:
        return set(file.keys())


@contextlib.contextmanager
def _open_tensors(path: pathlib.Path) -> Iterator[Any]:
    """Open a .safetensors file. Raises FolderError if it is damaged."""
    try:
        file = safe_open(path, framework="np")
    except SafetensorError as error:
        size = path.stat().st_size
        raise FolderError(
            f"{path}: not a whole .safetensors file of {size:,} bytes ({error}); fetch it again"
        ) from error
    with file:
        yield file
