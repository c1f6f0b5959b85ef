"""ELMo: models/elmo.py, and its released weights in HDF5. transformers has no such model."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.objectives.bidirectional_lm import BidirectionalLm
from models.config.elmo import ElmoConfig
from pretrain.families.family_record import Family, Hdf5Map
from pretrain.settings import AdamW

CHARACTERS = 261  # rows of the released table, without the row for "no word"
DIRECTIONS = {"forward": "RNN_0", "backward": "RNN_1"}
CELL = "{}/RNN/MultiRNNCell/Cell{}/LSTMCell"


def import_language_model(config: ElmoConfig) -> BidirectionalLm:
    """Return the objective that trains an imported model further."""
    return BidirectionalLm(characters=config.characters)


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration from the content of options.json.

    Raises:
      KeyError, TypeError: an option is missing, or of another type.
      ValueError: an option has a value that this project does not support.
    """
    lstm, cnn = options["lstm"], options["char_cnn"]
    if lstm["cell_clip"] != lstm["proj_clip"]:
        raise ValueError(
            f"cell_clip is {lstm['cell_clip']} and proj_clip {lstm['proj_clip']}; "
            "one limit for both is read"
        )
    if cnn["n_characters"] not in (CHARACTERS, CHARACTERS + 1):
        raise ValueError(
            f"n_characters is {cnn['n_characters']!r:.40}; {CHARACTERS} are read, and in inference "
            f"{CHARACTERS + 1}"
        )
    if cnn["activation"] not in ("relu", "tanh"):
        raise ValueError(f"activation is {cnn['activation']!r:.40}; relu and tanh are read")
    if not lstm["projection_dim"] < lstm["dim"]:
        raise ValueError(
            f"projection_dim is {lstm['projection_dim']} and dim {lstm['dim']}; the cells are "
            "projected to fewer numbers"
        )
    return {
        "width": lstm["projection_dim"],
        "cells": lstm["dim"],
        "depth": lstm["n_layers"],
        "clip": float(lstm["cell_clip"]),
        "residual": bool(lstm.get("use_skip_connections", False)),
        "characters": cnn["max_characters_per_token"],
        "character_width": cnn["embedding"]["dim"],
        "character_filters": tuple((window, number) for window, number in cnn["filters"]),
        "highways": cnn.get("n_highway", 0),
        "activation": cnn["activation"],
    }


def list_datasets(config: ElmoConfig) -> dict[str, tuple[int, ...]]:
    """Return {name: shape} of the datasets of a configuration."""
    c, F = config, sum(number for _, number in config.character_filters)
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (CHARACTERS, c.character_width)}
    for i, (window, number) in enumerate(c.character_filters):
        shapes[f"CNN/W_cnn_{i}"] = (1, window, c.character_width, number)
        shapes[f"CNN/b_cnn_{i}"] = (number,)
    for i in range(c.highways):
        for name in ("carry", "transform"):
            shapes[f"CNN_high_{i}/W_{name}"], shapes[f"CNN_high_{i}/b_{name}"] = (F, F), (F,)
    shapes |= {"CNN_proj/W_proj": (F, c.width), "CNN_proj/b_proj": (c.width,)}
    for rnn in DIRECTIONS.values():
        for i in range(c.depth):
            cell = CELL.format(rnn, i)
            shapes[f"{cell}/W_0"] = (2 * c.width, 4 * c.cells)
            shapes[f"{cell}/B"] = (4 * c.cells,)
            shapes[f"{cell}/W_P_0"] = (c.cells, c.width)
    return shapes


def order_gates(array: np.ndarray) -> np.ndarray:
    """Return the gates i, j, f, o along the last axis as i, f, j, o."""
    i, j, f, o = np.split(array, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def fill_params(config: ElmoConfig, datasets: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return {our path: array} of the datasets."""
    c, words = config, "words"
    params = {f"{words}/character_embedding/embedding": datasets["char_embed"]}
    for i, (window, _) in enumerate(c.character_filters):
        params[f"{words}/window_{window}/kernel"] = datasets[f"CNN/W_cnn_{i}"][0]
        params[f"{words}/window_{window}/bias"] = datasets[f"CNN/b_cnn_{i}"]
    for i in range(c.highways):
        ours, theirs = f"{words}/highway_{i}", f"CNN_high_{i}"
        params[f"{ours}/gate/kernel"] = datasets[f"{theirs}/W_carry"]
        params[f"{ours}/gate_bias"] = datasets[f"{theirs}/b_carry"]
        params[f"{ours}/transform/kernel"] = datasets[f"{theirs}/W_transform"]
        params[f"{ours}/transform/bias"] = datasets[f"{theirs}/b_transform"]
    params[f"{words}/projection/kernel"] = datasets["CNN_proj/W_proj"]
    params[f"{words}/projection/bias"] = datasets["CNN_proj/b_proj"]
    for direction, rnn in DIRECTIONS.items():
        for i in range(c.depth):
            ours, cell = f"bilm/{direction}_layer_{i}/lstm", CELL.format(rnn, i)
            kernel = order_gates(datasets[f"{cell}/W_0"])
            params[f"{ours}/input/kernel"] = kernel[: c.width]
            params[f"{ours}/recurrent/kernel"] = kernel[c.width :]
            params[f"{ours}/input/bias"] = order_gates(datasets[f"{cell}/B"])
            params[f"{ours}/project/kernel"] = datasets[f"{cell}/W_P_0"]
    return params


FAMILY = Family(
    name="elmo",
    config=ElmoConfig,
    objectives=(BidirectionalLm,),
    make_import_objective=import_language_model,
    predictor="",
    title="ELMo bidirectional language model",
    task="feature-extraction",
    token_roles=("pad", "unk", "cls", "sep"),
    template="cls_sep",
    untrained_parts="the mix of layers",
    hdf5=Hdf5Map(read_options, list_datasets, fill_params),
    optimizer=AdamW(learning_rate=1e-3),
)
