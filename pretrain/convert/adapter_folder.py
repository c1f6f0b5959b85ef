"""LoRA's factors as a folder of `peft`: adapter_config.json and adapter_model.safetensors.

`peft` adapts a linear layer of transformers, whose weight is [out, in], by B A with A [r, in] and
B [out, r].
"""

from __future__ import annotations

import hashlib
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.store.atomic import replace_folder
from models.config.classifier import ClassifierConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from models.layers.layer_layout import match_layout, unflatten_params
from models.layers.lora import LORA_A, LORA_B
from pretrain.convert import find_model_family
from pretrain.convert.adapter_places import (
    Matrix,
    find_factors,
    flatten_model,
    is_of_head,
    list_head_matches,
    list_matrices,
    make_map,
)
from pretrain.convert.export_folder import list_sizes, save_tensors, write_json
from pretrain.convert.name_map import FLOATS, Match, expand_rules, format_names
from pretrain.convert.safe_folder import FolderError, FolderTensors, read_json
from pretrain.convert.weight_values import FiniteTensors, PrefixedTensors, check_finite
from pretrain.families.family_record import HuggingFaceMap

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
ENDS = {LORA_A: ".lora_A.weight", LORA_B: ".lora_B.weight"}
TASKS: dict[type[Any], str] = {
    ClassifierConfig: "SEQ_CLS",
    TaggerConfig: "TOKEN_CLS",
    SpanReaderConfig: "QUESTION_ANS",
}
TASKS_BY_NAME = {"text-generation": "CAUSAL_LM", "text2text-generation": "SEQ_2_SEQ_LM"}
# Settings of `peft` that change what an adapter computes: {key: the values that are read}.
PLAIN_SETTINGS: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None,),
    "use_bdlora": (None, False),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "use_qalora": (False, None),
}


# ---- export -----------------------------------------------------------------------


def write_adapter(
    output: pathlib.Path,
    model: Any,
    params: Any,
    alpha: float,
    dropout: float = 0.0,
    *,
    base: str | None = None,
    card: str | None = None,
    allow_nonfinite: bool = False,
) -> dict[str, int]:
    """Write the factors and the head of a model as a folder of `peft`; return {file: bytes}.

    The folder appears whole or not at all.

    Args:
      params: parameters with factors.
      alpha: `train.lora_alpha`.
      dropout: `train.lora_dropout`, with which `peft` trains the adapter on.
      base: the repository of the model beside which `peft` loads the adapter.
      card: text of README.md.

    Raises:
      ValueError: transformers has no such model, or not these linear layers; or values are not
        finite.
    """
    tensors, settings = export_adapter(model, params, alpha, dropout)
    for name, tensor in {} if allow_nonfinite else tensors.items():
        check_finite(name, tensor, "--allow-nonfinite exports it as it is.")
    settings["base_model_name_or_path"] = base
    with replace_folder(output) as folder:
        save_tensors(tensors, folder / WEIGHTS)
        if card is not None:
            (folder / "README.md").write_text(card)
        write_json(folder / CONFIG, settings)
        return list_sizes(folder)


def export_adapter(
    model: Any, params: Any, alpha: float, dropout: float = 0.0
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return ({name in `peft`: float32 array}, content of adapter_config.json).

    A kernel that shares a matrix of transformers with targets, and is none, gets zeros in its B.
    """
    rules, depths, hf_map = make_map(model)
    leaves, matches = flatten_model(model, params, depths), expand_rules(rules, depths)
    tensors, modules, transposed, rank = {}, [], set(), 0
    for matrix in list_matrices(leaves, matches):
        a, b = join_factors(leaves, matrix)
        rank = a.shape[1]
        tensors[PREFIX + matrix.name + ENDS[LORA_A]] = a[matrix.places.inputs].T
        tensors[PREFIX + matrix.name + ENDS[LORA_B]] = b[:, matrix.places.outputs].T
        modules.append(matrix.name)
        transposed.add(matrix.places.is_transposed)
    heads = {}
    for match in list_head_matches(model, params, matches):
        arrays = match.layout.export_tensors([leaves[path] for path in match.ours])
        heads |= zip(match.theirs, arrays, strict=True)
    tensors |= {PREFIX + name: array for name, array in heads.items()}
    settings = {
        "peft_type": "LORA",
        "task_type": TASKS.get(type(model)) or TASKS_BY_NAME.get(find_model_family(model).task),
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        "bias": "none",
        "fan_in_fan_out": transposed == {True},
        "target_modules": modules,
        "modules_to_save": sorted({name_module(name, hf_map) for name in heads}) or None,
        "inference_mode": True,
    }
    return {
        name: np.ascontiguousarray(leaf, np.float32) for name, leaf in tensors.items()
    }, settings


def join_factors(leaves: Mapping[str, np.ndarray], matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return (A [I, r], B [r, O]) of all kernels of a matrix, in our order."""
    found = [find_factors(leaves, path) for path in matrix.kernels]
    a = leaves[next(factors[0] for factors in found if factors)]
    rank = a.shape[-1]
    parts = []
    for factors, shape in zip(found, matrix.shapes, strict=True):
        size = math.prod(shape[a.ndim - 1 :])
        parts.append(leaves[factors[1]].reshape(rank, size) if factors else np.zeros((rank, size)))
    return a.reshape(-1, rank), np.concatenate(parts, 1)


def name_module(name: str, hf_map: HuggingFaceMap) -> str:
    """Return the module of a tensor that `peft` saves whole: of a head its first name."""
    return name.rpartition(".")[0] if name.startswith(hf_map.body) else name.partition(".")[0]


# ---- import -----------------------------------------------------------------------


class Adapter(NamedTuple):
    """An adapter of `peft` whose files were checked.

    Attributes:
      alpha: `train.lora_alpha` that gives its scale.
      dropout: `train.lora_dropout`.
      tensors: {name without the prefix: array}, each read when it is accessed.
    """

    folder: pathlib.Path
    rank: int
    alpha: float
    dropout: float
    tensors: Mapping[str, np.ndarray]

    @property
    def digest(self) -> str:
        """A hash of the file of its tensors."""
        return hashlib.sha256((self.folder / WEIGHTS).read_bytes()).hexdigest()[:32]

    @property
    def modules(self) -> list[str]:
        """Their names of the linear layers with factors."""
        end = ENDS[LORA_A]
        return [name.removesuffix(end) for name in self.tensors if name.endswith(end)]


def open_adapter(folder: str | os.PathLike[str]) -> Adapter:
    """Open a folder of `peft`, and check its settings and the headers of its tensors.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: it is no LoRA, has a setting that Cloze does not compute, or is damaged.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; --adapter reads one with {CONFIG}")
    settings = read_json(folder / CONFIG, missing="is this an adapter that `peft` saved?")
    for key, allowed in PLAIN_SETTINGS.items():
        value = settings.get(key, allowed[-1] if key != "peft_type" else None)
        if value not in allowed:
            raise FolderError(
                f"{folder / CONFIG}: {key} is {value!r:.80}; Cloze reads {allowed[0]!r} alone"
            )
    rank: Any = settings.get("r")
    alpha: Any = settings.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise FolderError(f"{folder / CONFIG}: r is {rank!r:.80}; expected a whole number from 1")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise FolderError(f"{folder / CONFIG}: lora_alpha is {alpha!r:.80}; expected a number")
    dropout: Any = settings.get("lora_dropout", 0.0)
    if type(dropout) not in (int, float) or not 0 <= dropout < 1:
        raise FolderError(
            f"{folder / CONFIG}: lora_dropout is {dropout!r:.80}; expected a number from 0, below 1"
        )
    if settings.get("use_rslora"):  # whose scale is alpha / sqrt(r)
        alpha *= math.sqrt(rank)
    tensors = FolderTensors(folder, WEIGHTS)
    if odd := sorted(name for name in tensors if not name.startswith(PREFIX)):
        raise FolderError(f"{folder / WEIGHTS}: {odd[0][:200]} does not begin with {PREFIX}")
    named = PrefixedTensors(FiniteTensors(tensors), PREFIX)
    return Adapter(folder, rank, float(alpha), float(dropout), named)


def find_adapter_targets(adapter: Adapter, model: Any) -> tuple[str, ...]:
    """Return `train.lora_targets` of an adapter.

    Raises FolderError, which names a module that the model lacks.
    """
    rules, depths, _ = make_map(model)
    kernels = {
        name.removesuffix(".weight"): match.ours
        for match in expand_rules(rules, depths)
        for name in match.theirs
    }
    if not adapter.modules:
        raise FolderError(f"{adapter.folder / WEIGHTS}: has no tensor with the end {ENDS[LORA_A]}")
    if lost := set(adapter.modules) - kernels.keys():
        raise FolderError(
            f"{adapter.folder}: is for another model: a {type(model.backbone).__name__} of this "
            f"size has no {format_names(lost)}"
        )
    parts = (path.split("/")[-2] for name in adapter.modules for path in kernels[name])
    return tuple(dict.fromkeys(parts))


def fill_adapter(adapter: Adapter, model: Any, params: Any) -> tuple[dict[str, Any], bool]:
    """Return (parameters with the factors and the head of an adapter, whether it has a head).

    Args:
      params: parameters with factors, as `factors.add_factors` makes them for the targets that
        `find_adapter_targets` returns.

    Raises:
      FolderError: names a tensor that is missing, has no place, or has another shape.
    """
    rules, depths, _ = make_map(model)
    leaves, matches = flatten_model(model, params, depths), expand_rules(rules, depths)
    used, filled = set(), {}
    for matrix in list_matrices(leaves, matches):
        filled |= split_factors(adapter, matrix, leaves)
        used |= {matrix.name + end for end in ENDS.values()}
    heads = list_head_matches(model, params, matches)
    names = {name for match in heads if is_of_head(match.ours[0], params) for name in match.theirs}
    has_head = not names.isdisjoint(adapter.tensors)
    if has_head and (lost := names - {*adapter.tensors}):
        raise FolderError(f"{adapter.folder / WEIGHTS}: lacks {format_names(lost)} of the head")
    for match in heads:
        if {*match.theirs} <= {*adapter.tensors}:
            filled |= fill_whole(adapter, match, leaves)
            used |= {*match.theirs}
    if unused := {*adapter.tensors} - used:
        raise FolderError(f"{adapter.folder}: the model has no place for {format_names(unused)}")
    leaves |= filled
    if isinstance(model, HeadedConfig):
        leaves = {
            path if is_of_head(path, params) else f"encoder/{path}": leaf
            for path, leaf in leaves.items()
        }
    return match_layout(unflatten_params(leaves), params), has_head


def split_factors(
    adapter: Adapter, matrix: Matrix, leaves: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return {our path: factor} of a matrix. Raises FolderError for other shapes."""
    inputs, outputs, _ = matrix.places
    name_a, name_b = (matrix.name + end for end in ENDS.values())
    a, b = np.empty((len(inputs), adapter.rank)), np.empty((adapter.rank, len(outputs)))
    a[inputs] = read_tensor(adapter, name_a, a.shape[::-1]).T
    b[:, outputs] = read_tensor(adapter, name_b, b.shape[::-1]).T
    found, first = {}, 0
    for path in matrix.kernels:
        factors = find_factors(leaves, path)
        assert factors, "the targets of an adapter are all kernels of its matrices"
        shape_a, shape_b = (leaves[factor].shape for factor in factors)
        last = first + math.prod(shape_b[1:])
        found[factors[0]] = a.reshape(shape_a).astype(np.float32)
        found[factors[1]] = b[:, first:last].reshape(shape_b).astype(np.float32)
        first = last
    return found


def fill_whole(
    adapter: Adapter, match: Match, leaves: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return {our path: array} of a part of the head. Raises FolderError for other shapes."""
    own = [leaves[path] for path in match.ours]
    shapes = [array.shape for array in match.layout.export_tensors(own)]
    read = [read_tensor(adapter, name, shape) for name, shape in zip(match.theirs, shapes)]
    return dict(zip(match.ours, match.layout.fill_params(read, [leaf.shape for leaf in own])))


def read_tensor(adapter: Adapter, name: str, shape: Sequence[int]) -> np.ndarray:
    """Return a tensor as float32. Raises FolderError, which names it, if it has another shape."""
    if name not in {*adapter.tensors}:
        raise FolderError(f"{adapter.folder / WEIGHTS}: lacks {PREFIX}{name}")
    tensor = adapter.tensors[name]
    if tensor.shape != tuple(shape) or tensor.dtype.name not in FLOATS:
        raise FolderError(
            f"{adapter.folder / WEIGHTS}: {PREFIX}{name} is {tensor.dtype.name} "
            f"{list(tensor.shape)}; this model makes it {list(shape)}"
        )
    return tensor.astype(np.float32)
