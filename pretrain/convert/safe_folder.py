"""A Hugging Face folder, read without trusting it and written whole or not at all.

Only `.safetensors` files are read: a header and bytes, with nothing in them to execute. Pickles are never opened.
"""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Mapping

import ml_dtypes  # noqa: F401  numpy learns from it what bfloat16 is
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from data.store.atomic import replace_folder
from pretrain.families import FAMILIES

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
# What an export may consist of, with the folders in PARTS: a folder with anything else in it is not ours to replace.
OURS = {
    *(CONFIG, WEIGHTS, INDEX, "generation_config.json", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "spiece.model", "vocab.json", "merges.txt"),
}
FOR_JAX = {"params", "models", "load.py", "program.bin", "example.npz"}  # jax_folder.py
PARTS = {name for family in FAMILIES.values() for name in family.hugging_face.second_models}
FRACTIONS = ("F32", "F16", "BF16")  # float32 holds each of their values exactly
FORMATS = (*FRACTIONS, "I64", "I32", "I16", "I8", "U8", "BOOL")
UNSAFE = (
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"),
    *("tf_model.h5", "flax_model.msgpack"),
)
CONVERT = (
    "Cloze reads .safetensors only, since such a file may run code when it is opened. Where you trust it, convert it once: "
    "python -c \"import transformers as t; t.AutoModelForPreTraining.from_pretrained('IN').save_pretrained('OUT')\""
)


class FolderError(ValueError):
    """A folder that is not, or not soundly, a model; the message names the file and what to do."""


# ---- reading -----------------------------------------------------------------


def read_config(folder, report=print):
    """The `config.json` of a folder as a dict. Raises FolderError, or FileNotFoundError for no such folder.

    Code that the file refers to (`auto_map`) is never run; `report` is told so.
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
            f"{folder / CONFIG}: auto_map names code of its own ({', '.join(names)}), which Cloze never runs"
        )
    return config


def read_json(path, missing="it belongs to the model"):
    """The JSON object in a file. Raises FolderError that names the file; `missing` says what its absence means."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(f"{path.parent}: no {path.name}: {missing}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FolderError(f"{path}: not JSON ({error}); was it fetched whole?") from error
    if not isinstance(content, dict):
        raise FolderError(f"{path}: holds {type(content).__name__}, expected a JSON object")
    return content


class Tensors(Mapping):
    """The tensors of a folder, by name, each read from its file when asked for; numbers with a fraction as float32.

    Raises FolderError on construction where a file is missing, cut off or damaged, where the index and the files
    disagree, or a tensor is in a format that float32 does not hold; so a later read does not fail half-way.
    """

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        index = folder / INDEX
        self._files = _indexed(index) if index.exists() else _single(folder)
        self._formats = {}
        for path in sorted(set(self._files.values())):
            with _open(path) as file:
                self._formats |= {
                    name: file.get_slice(name).get_dtype()
                    for name in file.keys()  # noqa: SIM118 - it has keys, but no __iter__
                    if self._files.get(name) == path
                }
        for name, held in self._formats.items():
            if held not in FORMATS:
                raise FolderError(
                    f"{self._files[name]}: {name} is stored as {held}; Cloze reads {', '.join(FORMATS)}"
                )

    def __getitem__(self, name):
        path = self._files[name]
        with _open(path) as file:
            array = file.get_tensor(name)
        return array.astype(np.float32, copy=False) if self._formats[name] in FRACTIONS else array

    def __iter__(self):
        return iter(self._files)

    def __len__(self):
        return len(self._files)

    def formats(self):
        """The formats of the tensors with fractions, as safetensors names them: ("F32",), ("BF16", "F32"), ..."""
        return tuple(sorted(set(self._formats.values()) & set(FRACTIONS)))


class Joined(Mapping):
    """The tensors of a folder, and of folders in it by the names PART/NAME; {part: Tensors}, the folder itself under ""."""

    def __init__(self, parts):
        self._parts = parts
        self._places = {
            f"{part}/{name}" if part else name: (part, name)
            for part, tensors in parts.items()
            for name in tensors
        }

    def __getitem__(self, name):
        part, inner = self._places[name]
        return self._parts[part][inner]

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def formats(self):
        """As `Tensors.formats`."""
        return tuple(
            sorted({held for tensors in self._parts.values() for held in tensors.formats()})
        )


def _single(folder):
    path = folder / WEIGHTS
    if not path.is_file():
        unsafe = [name for name in UNSAFE if (folder / name).exists()]
        if unsafe:
            raise FolderError(f"{folder}: has {unsafe[0]} but no {WEIGHTS}. {CONVERT}")
        others = sorted(other.name for other in folder.glob("*.safetensors"))
        hint = f"; it has {', '.join(others[:4])} and no {INDEX}" if others else ""
        raise FolderError(f"{folder}: no {WEIGHTS}{hint}")
    return dict.fromkeys(_names(path), path)


def _indexed(index):
    """{tensor: path} of a sharded model; the index may name files of its own folder, and nothing else."""
    places = read_json(index).get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(file, str) for file in places.values())
    ):
        raise FolderError(f"{index}: weight_map is not an object of tensor: file")
    held = {}
    for file in sorted(set(places.values())):
        if (
            pathlib.PurePath(file).name != file
            or "\\" in file
            or "\0" in file
            or not file.endswith(".safetensors")
        ):
            raise FolderError(
                f"{index}: names {file!r}; only .safetensors files beside the index are read"
            )
        path = index.parent / file
        if not path.is_file():
            raise FolderError(
                f"{path}: missing, though {index.name} names it; fetch the model again"
            )
        held[file] = _names(path)
    for name, file in places.items():
        if name not in held[file]:
            raise FolderError(
                f"{index.parent / file}: has no tensor {name}, though {index.name} says so; fetch it again"
            )
    return {name: index.parent / file for name, file in places.items()}


def _names(path):
    with _open(path) as file:
        return set(file.keys())


@contextlib.contextmanager
def _open(path):
    try:
        file = safe_open(path, framework="np")
    except SafetensorError as error:
        size = path.stat().st_size
        raise FolderError(
            f"{path}: not a whole .safetensors file of {size:,} bytes ({error}); fetch it again"
        ) from error
    with file:
        yield file


# ---- writing -----------------------------------------------------------------


@contextlib.contextmanager
def replace_export(output, overwrite=False):
    """Yield a new folder to fill, which becomes `output` when the block ends, or vanishes when it raises.

    Raises FileExistsError for an `output` that is not empty, unless `overwrite` and it holds nothing but an export.
    """
    with replace_folder(check_output(output, overwrite)) as folder:
        yield folder


def check_output(output, overwrite=False):
    """The absolute path of `output`, if `replace_export` would write there; what it would raise, if not."""
    if "://" in str(output):
        raise FolderError(
            f"{output}: an export is written to a folder on this machine; copy it from there"
        )
    output = pathlib.Path(os.path.abspath(output))
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise FileExistsError(f"{output}: exists and is not a folder")
    present = sorted(path.name for path in output.iterdir()) if output.exists() else []
    if present and not overwrite:
        raise FileExistsError(
            f"{output}: exists and is not empty; name another folder, or add --overwrite"
        )
    foreign = sorted(_foreign(output)) if present else []
    if foreign:
        raise FileExistsError(
            f"{output}: holds {foreign[0]}, which no export writes: not replaced; name another folder"
        )
    return output


def _foreign(output):
    """What an export does not consist of, as paths from `output` on; folders of PARTS are exports in their turn."""
    known = OURS | (FOR_JAX if all((output / name).exists() for name in FOR_JAX) else set())
    for path in output.iterdir():
        if path.name in PARTS and path.is_dir() and not path.is_symlink():
            yield from (f"{path.name}/{name}" for name in _foreign(path))
        elif path.name not in known and not SHARD.fullmatch(path.name):
            yield path.name


def write_tensors(folder, tensors, limit=SHARD_BYTES):
    """Write {name: array} as model.safetensors, or as numbered files of at most `limit` bytes with their index."""
    shards, room = [{}], limit
    for name, array in tensors.items():
        if array.nbytes > room and shards[-1]:
            shards.append({})
            room = limit
        shards[-1][name] = np.ascontiguousarray(array)
        room -= array.nbytes
    if len(shards) == 1:
        _save(shards[0], folder / WEIGHTS)
        return
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _save(shard, folder / file)
        places |= dict.fromkeys(shard, file)
    total = sum(array.nbytes for array in tensors.values())
    write_json(
        folder / INDEX,
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))},
    )


def _save(tensors, path):
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)  # the library leaves a file that only its owner can read


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
