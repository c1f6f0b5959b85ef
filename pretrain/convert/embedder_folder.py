"""The files by which sentence-transformers opens a folder: what is done to the states of a model.

modules.json lists the steps: the model of transformers, its pooling, and a normalization. The keys
of the pooling are those that all versions of sentence-transformers read.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from models.config.embedder import EmbedderConfig
from models.config.heads import LIMITLESS
from pretrain.convert.export_folder import (
    MODULES,
    NORMALIZE,
    POOLING,
    STEP_SETTINGS,
    write_json,
)
from pretrain.convert.safe_folder import CONFIG, FolderError, read_json

LIBRARY = "sentence_transformers.models"
MAX_MODULES = 20
# {our pooling: (their key in 1_Pooling/config.json, version 6's word for it)}
KEYS = {
    "mean": ("pooling_mode_mean_tokens", "mean"),
    "cls": ("pooling_mode_cls_token", "cls"),
    "last": ("pooling_mode_lasttoken", "lasttoken"),
}


def write_modules(folder: pathlib.Path, config: EmbedderConfig) -> None:
    """Write the files of an embedder in the folder of its encoder."""
    names = {"Transformer": "", "Pooling": POOLING} | (
        {"Normalize": NORMALIZE} if config.normalize else {}
    )
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{LIBRARY}.{name}"}
        for number, (name, path) in enumerate(names.items())
    ]
    write_json(folder / MODULES, modules)
    for path in filter(None, names.values()):
        (folder / path).mkdir()
    keys = {key: name == config.pooling for name, (key, _) in KEYS.items()}
    pooling = {"word_embedding_dimension": config.encoder.width, **keys, "include_prompt": True}
    write_json(folder / POOLING / CONFIG, pooling)
    length = config.length if config.length < LIMITLESS else None
    settings = (
        {"max_seq_length": length, "do_lower_case": False},
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    for name, content in zip(STEP_SETTINGS, settings, strict=True):
        write_json(folder / name, content)


def read_modules(folder: pathlib.Path) -> dict[str, Any] | None:
    """Return {"pooling", "normalize"} of the folder of an embedder; None without modules.json.

    Raises:
      FolderError: a step is not supported, or a file is missing or damaged.
    """
    if not (folder / MODULES).exists():
        return None
    modules = read_json(folder / MODULES, kind=list)
    kinds = [find_kind(module, folder / MODULES) for module in modules[:MAX_MODULES]]
    allowed = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    if kinds not in allowed:
        raise FolderError(
            f"{folder / MODULES}: the steps are {', '.join(kinds) or 'none'}; Cloze reads "
            "Transformer, Pooling, and Normalize if it is there, in this order"
        )
    if modules[0].get("path"):
        raise FolderError(
            f"{folder / MODULES}: the model is in {modules[0]['path']!r:.80}; Cloze reads one that "
            "is in the folder itself. Save it again with sentence-transformers"
        )
    path = modules[1].get("path")
    if not isinstance(path, str) or path == ".." or pathlib.PurePath(path).name != path:
        raise FolderError(f"{folder / MODULES}: path of Pooling is {path!r:.80}; expected a folder")
    pooling = read_json(folder / path / CONFIG)
    found = find_pooling(pooling, folder / path / CONFIG)
    return {"pooling": found, "normalize": len(kinds) == len(allowed[1])}


def find_kind(module: Any, path: pathlib.Path) -> str:
    """Return the name of a step's class. Raises FolderError if the entry has none."""
    kind = module.get("type") if isinstance(module, dict) else None
    if not isinstance(kind, str):
        raise FolderError(f"{path}: {module!r:.80} names no class (type)")
    return kind.rpartition(".")[2][:80]


def find_pooling(pooling: Mapping[str, Any], path: pathlib.Path) -> str:
    """Return our name of a pooling. Raises FolderError for another kind, and for several."""
    word = pooling.get("pooling_mode")
    given = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value]
    found = [name for name, (key, theirs) in KEYS.items() if key in given or theirs == word]
    if len(found) != 1 or len(given) > 1 or (word is not None and not isinstance(word, str)):
        modes = ", ".join(given) or repr(word)
        raise FolderError(
            f"{path}: the pooling is {modes[:200]}; Cloze has one of "
            f"{', '.join(key for key, _ in KEYS.values())}"
        )
    return found[0]
