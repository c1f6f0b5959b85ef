"""The size of a model's vocabulary follows the store that it trains on, or its teacher."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from data.corpus.paths import as_path, is_remote
from data.store.manifest import read_manifest
from models.config.base import ModelConfig
from pretrain.config import Run, flatten_config, print_notice, read_settings, validate_run

KEY = "model.vocab"
TILE = 128  # columns that a matrix unit computes at once
LEAST_TILED = 1024  # [ids] below it, whole tiles would waste too much


def follow_store(
    run: Run,
    config: str | os.PathLike[str],
    arguments: Sequence[str],
    workdir: str | os.PathLike[str] | None = None,
    report: Callable[[str], Any] = print_notice,
) -> Run:
    """Return a run whose `model.vocab` fits the vocabulary of `data.store`.

    The size of the configuration stays if it was given as an argument, if it is the size of the
    store's vocabulary or that size padded to whole tiles, if the store is not there, if the model
    reads something other than ids, or if other sizes do not fit a smaller one, such as the clusters
    of an adaptive softmax. A workdir that exists keeps its own.

    Args:
      config: the name or path from which it was loaded. A saved config.json stays as it is.
      workdir: the folder of the run, if it has one.

    Raises:
      ConfigError: the run is not valid with the size of the store.
      ValueError: the store's manifest is broken.
    """
    model: Any = run.model
    if (
        not isinstance(model, ModelConfig)
        or model.characters
        or model.frozen_params  # a teacher's vocabulary is the student's
        or is_size_fixed(config, arguments)
    ):
        return run
    if workdir is None and is_remote(run.data.store):  # nothing is trained: no network is needed
        return run
    size = read_vocabulary_size(run.data.store)
    if size is None or size <= model.vocab <= pad_vocabulary(size, TILE):
        return run
    recorded = read_recorded_size(workdir) if workdir is not None else None
    vocab = recorded or pad_vocabulary(size, run.mesh.model)
    if vocab == model.vocab or vocab < model.least_vocab <= model.vocab:
        return run
    resized = dataclasses.replace(run, model=dataclasses.replace(model, vocab=vocab))
    validate_run(resized)
    if recorded is None:
        report(
            f"{KEY}={vocab} follows {run.data.store}, whose vocabulary has {size:,} ids "
            f"({model.vocab:,} in the configuration)"
        )
    return resized


def follow_teacher(
    run: Run,
    teacher: Any,
    config: str | os.PathLike[str],
    arguments: Sequence[str],
    report: Callable[[str], Any] = print_notice,
) -> Run:
    """Return a student's run whose `model.vocab` is its teacher's, unless the size is given.

    Args:
      config: the name or path from which the run was loaded. A saved config.json stays as it is.
    """
    model: Any = run.model
    if (
        not isinstance(model, ModelConfig)
        or not isinstance(teacher, ModelConfig)
        or model.vocab == teacher.vocab
        or is_size_fixed(config, arguments)
    ):
        return run
    report(f"{KEY}={teacher.vocab} follows the teacher ({model.vocab:,} in the configuration)")
    return dataclasses.replace(run, model=dataclasses.replace(model, vocab=teacher.vocab))


def is_size_fixed(config: str | os.PathLike[str], arguments: Sequence[str]) -> bool:
    """Whether a saved configuration or an argument gives the size of the vocabulary."""
    is_saved = os.fspath(config).endswith(".json")
    return is_saved or any(argument.partition("=")[0] == KEY for argument in arguments)


def pad_vocabulary(size: int, devices: int) -> int:
    """Return a size rounded up to whole tiles, unless it is small, and to a multiple of devices.

    Args:
      size: [ids] of a vocabulary.
      devices: `mesh.model`, over which the rows of the embeddings are sharded.
    """
    multiple = math.lcm(devices, TILE if size >= LEAST_TILED else 1)
    return -(-size // multiple) * multiple


def read_vocabulary_size(store: str) -> int | None:
    """Return the number of ids of a store's vocabulary; None where there is no such store."""
    if not store:
        return None
    try:
        vocabulary = read_manifest(as_path(store)).get("vocabulary")
    except FileNotFoundError:
        return None
    size = vocabulary.get("size") if isinstance(vocabulary, dict) else None
    return size if type(size) is int and size > 0 else None


def read_recorded_size(workdir: str | os.PathLike[str]) -> int | None:
    """Return the size with which a run began; None for a new workdir."""
    path = as_path(workdir) / "config.json"
    if isinstance(path, pathlib.Path) and not path.is_file():
        return None
    size = flatten_config(read_settings(path)).get(KEY)
    return size if type(size) is int and size > 0 else None
