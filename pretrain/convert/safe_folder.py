"""Safe reading of an untrusted Hugging Face folder.

Only `.safetensors` files are read: a header and bytes, which contain no code. Pickles are never
opened.
"""

import contextlib
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from safetensors import SafetensorError, safe_open

from data.corpus.untrusted import check_own_file, read_bounded_json
from pretrain.convert.safetensors_header import TensorEntry, read_header
from pretrain.convert.size_checks import check_fits_memory

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FRACTIONS = ("F32", "F16", "BF16")  # float32 holds each of their values exactly
FORMATS = (*FRACTIONS, "I64", "I32", "I16", "I8", "U8", "BOOL")
MAX_NAMES = 100  # of classes in a config.json
MAX_FILES = 1000  # of the tensors of a model
UNSAFE = (
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"),
    *("tf_model.h5", "flax_model.msgpack"),
)
CONVERT_HINT = (
    "Cloze reads .safetensors files only, since a file of another kind may run code when it is "
    'opened. If you trust it, convert it once: python -c "import transformers as t; '
    "t.AutoModelForPreTraining.from_pretrained('IN').save_pretrained('OUT')\""
)
WIDE_HINT = (
    '. Convert it once: python -c "import transformers as t; '
    "t.AutoModelForPreTraining.from_pretrained('IN').float().save_pretrained('OUT')\""
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
    if not isinstance(config.get("model_type"), str | None):
        raise FolderError(
            f"{folder / CONFIG}: model_type is {config['model_type']!r:.80}; expected a text"
        )
    for key in ("architectures", "auto_map"):
        if isinstance(config.get(key), list | dict) and len(config[key]) > MAX_NAMES:
            raise FolderError(
                f"{folder / CONFIG}: {key} has {len(config[key]):,} entries; at most {MAX_NAMES} "
                "are read"
            )
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


def read_json(
    path: pathlib.Path, missing: str = "it belongs to the model", kind: type = dict
) -> Any:
    """Return the JSON object in a file, or its list if `kind` is list.

    Raises FolderError, which names the file; `missing` is its explanation of an absent file.
    """
    try:
        check_own_file(path)
        content = read_bounded_json(path)
    except FileNotFoundError:
        raise FolderError(f"{path.parent}: no {path.name}: {missing}") from None
    except ValueError as error:
        raise FolderError(str(error)) from None
    if not isinstance(content, kind):
        expected = "a list" if kind is list else "a JSON object"
        raise FolderError(f"{path}: holds {type(content).__name__}, expected {expected}")
    return content


class FolderTensors(Mapping[str, np.ndarray]):
    """The tensors of a folder by name; each is read when it is accessed, floats as float32.

    Of a folder with one file and an index of several, the one file is read, as in transformers.

    The constructor raises FolderError if a file is missing, cut off or damaged, if the index and
    the files disagree, if a tensor has a format that float32 does not contain, or if the tensors do
    not fit into memory. So later reads do not fail half-way.
    """

    def __init__(self, folder: str | os.PathLike[str], weights: str = WEIGHTS) -> None:
        """Open the tensors; weights: the name of the one file."""
        self.folder = folder = pathlib.Path(folder)
        index = folder / INDEX
        is_indexed = os.path.lexists(index) and not os.path.lexists(folder / weights)
        located = _locate_indexed(index) if is_indexed else _locate_single(folder, weights)
        self._files = {name: path for name, (path, _) in located.items()}
        self.shapes = {name: entry.shape for name, (_, entry) in located.items()}
        self._formats = {name: entry.dtype for name, (_, entry) in located.items()}
        for name, stored in self._formats.items():
            if stored not in FORMATS:
                raise FolderError(
                    f"{self._files[name]}: {name[:200]} is stored as {stored[:80]}; Cloze reads "
                    f"{', '.join(FORMATS)}{WIDE_HINT if stored == 'F64' else ''}"
                )
        try:
            check_fits_memory(sum(map(math.prod, self.shapes.values())))
        except ValueError as error:
            raise FolderError(f"{folder}: {error}") from None
        for path in set(self._files.values()):
            with _open_tensors(path):  # the library's own checks
                pass

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
        """Join the tensors of {subfolder: Tensors}; the folder itself has the name "".

        Raises FolderError if a subfolder is a link to another place.
        """
        self._folders, root = folders, folders[""].folder.resolve()
        for name, tensors in folders.items():
            if tensors.folder.resolve() != root / name:
                raise FolderError(
                    f"{tensors.folder}: is a link to {tensors.folder.resolve()}; copy the folder "
                    "itself there if you trust it"
                )
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

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{name: shape} of all tensors."""
        return {
            name: self._folders[folder].shapes[inner]
            for name, (folder, inner) in self._places.items()
        }

    def list_formats(self) -> tuple[str, ...]:
        """Return the floating-point formats of all tensors, as `FolderTensors.list_formats`."""
        formats = {name for tensors in self._folders.values() for name in tensors.list_formats()}
        return tuple(sorted(formats))


Located = dict[str, tuple[pathlib.Path, TensorEntry]]  # {tensor: (its file, its entry there)}


def _locate_single(folder: pathlib.Path, weights: str) -> Located:
    """Return the tensors of a model in one file."""
    path = folder / weights
    if not os.path.lexists(path):
        unsafe = [name for name in UNSAFE if (folder / name).exists()]
        if unsafe:
            raise FolderError(f"{folder}: has {unsafe[0]} but no {weights}. {CONVERT_HINT}")
        others = sorted(other.name for other in folder.glob("*.safetensors"))
        hint = f"; it has {', '.join(others[:4])} and no {INDEX}" if others else ""
        raise FolderError(f"{folder}: no {weights}{hint}")
    return {name: (path, entry) for name, entry in _read_entries(path).items()}


def _locate_indexed(index: pathlib.Path) -> Located:
    """Return the tensors of a sharded model; the index may name files of its own folder only."""
    places = read_json(index).get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(file, str) for file in places.values())
    ):
        raise FolderError(f"{index}: weight_map is not an object of tensor: file")
    files = sorted(set(places.values()))
    if len(files) > MAX_FILES:
        raise FolderError(f"{index}: names {len(files):,} files; at most {MAX_FILES:,} are read")
    for file in files:
        if (
            pathlib.PurePath(file).name != file
            or "\\" in file
            or "\0" in file
            or not file.endswith(".safetensors")
        ):
            raise FolderError(
                f"{index}: names {file[:200]!r}; only .safetensors files next to the index are read"
            )
        if not os.path.lexists(index.parent / file):
            raise FolderError(
                f"{index.parent / file}: missing, though {index.name} names it; fetch the model "
                "again"
            )
    located: Located = {}
    for file in files:
        path, named = index.parent / file, {name for name in places if places[name] == file}
        entries = _read_entries(path)
        if lost := sorted(named - entries.keys()):
            raise FolderError(
                f"{path}: has no tensor {lost[0][:200]}, though {index.name} says so; fetch it "
                "again"
            )
        located |= {name: (path, entries[name]) for name in named}
    return {name: located[name] for name in places}


def _read_entries(path: pathlib.Path) -> dict[str, TensorEntry]:
    """Return the entries of a file's header. Raises FolderError if it is damaged."""
    try:
        return read_header(path)
    except ValueError as error:
        raise FolderError(str(error)) from None


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
