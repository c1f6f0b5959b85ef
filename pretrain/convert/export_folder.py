"""Atomic writing of an export: a folder that appears whole or not at all."""

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from data.corpus.paths import check_utf8_path
from data.corpus.untrusted import read_bounded, read_bounded_json
from data.store.atomic import replace_folder
from pretrain.convert import find_model_family
from pretrain.convert.safe_folder import CONFIG, INDEX, WEIGHTS, FolderError
from pretrain.families import FAMILIES, remote_code

SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")  # in a message of safetensors
SHARD_BYTES = 5_000_000_000  # most bytes of a safetensors file
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
# Of an embedder: the list of its steps, the folders of two, and settings (embedder_folder.py).
MODULES, POOLING, NORMALIZE = "modules.json", "1_Pooling", "2_Normalize"
STEP_SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
# The files of an export, which may also have the folders in SUBFOLDERS. A folder with any other
# file is never replaced.
EXPORT_FILES = {
    *(CONFIG, WEIGHTS, INDEX, "generation_config.json", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "spiece.model", "vocab.json", "merges.txt"),
    *("preprocessor_config.json", "classes.json"),
    *(MODULES, *STEP_SETTINGS),
    *(
        family.hugging_face.code
        for family in FAMILIES.values()
        if family.hugging_face and family.hugging_face.code.endswith(".py")
    ),
}
# The files that pretrain/publish/jax_folder.py writes in addition.
JAX_FILES = {"params", "models", "load.py", "program.bin", "example.npz"}
# The files of an adapter (pretrain/convert/adapter_folder.py), which has README.md besides.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = {ADAPTER_CONFIG, "adapter_model.safetensors", "README.md"}
SUBFOLDERS = {POOLING, NORMALIZE} | {
    name
    for family in FAMILIES.values()
    if family.hugging_face
    for name in family.hugging_face.second_models
}


# How README.md of an export begins and goes on (cards/model_card.py, jax_folder.py). It proves that
# a folder is an export: its other files have the names that `transformers` gives to any model.
CARDS = (
    re.compile(
        r"---\nlibrary_name: (transformers|peft|sentence-transformers)\npipeline_tag: [^\n]*\n"
        r"tags: \[[^\n]*\]\n(base_model: [^\n]*\n)?(license: [^\n]*\n)?---\n\n# A .*\n\n\| \| \|\n"
        r"\|-\|-\|\n.*\n\n## Evaluation\n\n.*\n\n## Use\n\n```python\n.*\n```\n\n## Limits\n\n",
        re.DOTALL,
    ),
    re.compile(r"# A [^\n]* model for JAX, parameters in [^\n]*\n\nIts code needs flax and orbax-"),
)
MAX_CARD = 1 << 20  # bytes


@contextlib.contextmanager
def replace_export(
    output: str | os.PathLike[str], overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Yield a new folder, which becomes `output` if the block succeeds and is deleted if it fails.

    Raises the errors of `check_output`.
    """
    with replace_folder(check_output(output, overwrite)) as folder:
        yield folder
        check_output(output, overwrite)  # another program may have filled it meanwhile


def check_output(output: str | os.PathLike[str], overwrite: bool = False) -> pathlib.Path:
    """Return the absolute path of `output`, if an export may be written there.

    Raises:
      FolderError: it is remote.
      ValueError: it is not UTF-8.
      FileExistsError: it exists, and is not empty without `overwrite`, contains files that no
        export writes, or has no README.md that proves it to be an export.
    """
    if "://" in str(output):
        raise FolderError(
            f"{output}: an export is written to a folder on this machine; copy it from there"
        )
    output = pathlib.Path(os.path.abspath(output))
    check_utf8_path(output)
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise FileExistsError(f"{output}: exists and is not a folder")
    present = sorted(path.name for path in output.iterdir()) if output.exists() else []
    if present and not overwrite:
        raise FileExistsError(
            f"{output}: exists and is not empty; name another folder, or add --overwrite"
        )
    foreign = sorted(_find_foreign(output)) if present else []
    if foreign:
        raise FileExistsError(
            f"{output}: holds {foreign[0]}, which no export writes, so the folder is not replaced; "
            "name another folder"
        )
    if problem := _find_doubt(output) if present else "":
        raise FileExistsError(
            f"{output}: {problem}, so the folder is not replaced; name another folder, or remove "
            "this one yourself"
        )
    return output


def _find_doubt(output: pathlib.Path) -> str:
    """Return why a folder may be something else than an export of this program, or ""."""
    try:
        card = read_bounded(output / "README.md", MAX_CARD).decode()
    except (OSError, ValueError):
        card = ""
    if not any(pattern.match(card) for pattern in CARDS):
        return "has no README.md of an export by Cloze"
    for name, key, library in (
        (CONFIG, "transformers_version", "transformers"),
        (ADAPTER_CONFIG, "auto_mapping", "peft"),
    ):
        try:
            config = read_bounded_json(output / name)
        except (OSError, ValueError):
            config = {}
        if isinstance(config, dict) and key in config:
            return f"was saved again by `{library}` (its {name} says so)"
    return ""


def _find_foreign(output: pathlib.Path) -> Iterator[str]:
    """Yield the files that no export writes, relative to `output`; SUBFOLDERS are searched too."""
    known = EXPORT_FILES | (
        JAX_FILES if all((output / name).exists() for name in JAX_FILES) else set()
    )
    if {path.name for path in output.iterdir()} <= ADAPTER_FILES:
        known = ADAPTER_FILES
    for path in output.iterdir():
        if path.name in SUBFOLDERS and path.is_dir() and not path.is_symlink():
            yield from (f"{path.name}/{name}" for name in _find_foreign(path))
        elif path.name not in known and not SHARD.fullmatch(path.name):
            yield path.name


def list_sizes(folder: pathlib.Path) -> dict[str, int]:
    """Return {file: size in bytes} of all files in a folder and its subfolders."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_tensors(
    folder: pathlib.Path, tensors: Mapping[str, np.ndarray], limit: int = SHARD_BYTES
) -> None:
    """Write {name: array} as model.safetensors, or as several files with an index.

    limit: bytes of a file; a single larger tensor gets a file of its own.
    """
    shards, room = [{}], limit
    for name, array in tensors.items():
        if array.nbytes > room and shards[-1]:
            shards.append({})
            room = limit
        shards[-1][name] = np.ascontiguousarray(array)
        room -= array.nbytes
    if len(shards) == 1:
        save_tensors(shards[0], folder / WEIGHTS)
        return
    files = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_tensors(shard, folder / file)
        files |= dict.fromkeys(shard, file)
    total = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
    write_json(folder / INDEX, index)


def save_tensors(tensors: dict[str, np.ndarray], path: pathlib.Path) -> None:
    """Write a .safetensors file with the default permissions; `save_file` alone has mode 0600."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        if not (found := SYSTEM_ERROR.search(str(error))):
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
    path.chmod(mode)


def write_own_code(folder: pathlib.Path, config: Any) -> None:
    """Write the file with which transformers opens a model that it lacks, if we have one."""
    family = find_model_family(config)
    if family.hugging_face and family.hugging_face.code.endswith(".py"):
        source = pathlib.Path(remote_code.__path__[0], f"{family.name}.py")
        shutil.copyfile(source, folder / family.hugging_face.code)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
