"""Where LoRA's factors are in the linear layers of transformers, by the rules of a family.

A rule says where each kernel is in a matrix of theirs. Applied to the numbers of inputs and outputs
it says where each input and output is, so no family needs rules of its own for LoRA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from models.config.heads import HeadedConfig
from models.layers.lora import LORA_A, LORA_B
from pretrain.convert import find_model_family, fine_tuned
from pretrain.convert.head_maps import list_unread_modules
from pretrain.convert.name_map import Depths, Match, Rules, flatten_layers
from pretrain.families.family_record import HuggingFaceMap
from pretrain.families.fine_tuning import is_outside_layers
from pretrain.families.rules import AnyLayout, SplitLayout


class Places(NamedTuple):
    """Where the inputs and outputs of our kernels are in a matrix of transformers.

    Attributes:
      inputs: [I] the number of ours at each input of theirs.
      outputs: [O] the number of ours at each output of theirs; the outputs of several kernels are
        numbered one after the other.
      is_transposed: whether their matrix is [in, out], as in GPT-2's Conv1D.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    is_transposed: bool


class Matrix(NamedTuple):
    """A matrix of transformers that has factors: our unstacked kernels in it, and their places."""

    name: str
    kernels: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    places: Places


def make_map(model: Any) -> tuple[Rules, Depths, HuggingFaceMap]:
    """Return (rules, depths of the stacks, the family's map) of a model, with or without a head.

    Raises ValueError for a model that transformers lacks.
    """
    if isinstance(model, HeadedConfig):
        return fine_tuned.make_headed_map(model)
    hf_map = find_model_family(model).require_hugging_face()
    return hf_map.make_rules(model), hf_map.find_depths(model), hf_map


def flatten_model(model: Any, params: Any, depths: Depths) -> dict[str, np.ndarray]:
    """Return {unstacked path: leaf} of parameters with factors, an encoder without its prefix."""
    if isinstance(model, HeadedConfig):
        head = {name: part for name, part in params.items() if name != "encoder"}
        params = params["encoder"] | head
    return flatten_layers(params, depths)


def find_factors(leaves: Mapping[str, Any], kernel: str) -> tuple[str, str] | None:
    """Return the paths of a kernel's A and B; None for a parameter without factors."""
    module, _, name = kernel.rpartition("/")
    outer = module.rpartition("/")[0]
    if name != "kernel" or f"{module}/{LORA_B}" not in leaves:
        return None
    place = module if f"{module}/{LORA_A}" in leaves else outer
    return f"{place}/{LORA_A}", f"{module}/{LORA_B}"


def list_matrices(leaves: Mapping[str, np.ndarray], matches: Sequence[Match]) -> Iterator[Matrix]:
    """Yield the matrices of transformers in which our kernels have factors.

    Raises ValueError for a kernel that is not a part of one linear layer there, or that shares it
    with a kernel whose A is another.
    """
    for match in matches:
        found = [find_factors(leaves, path) for path in match.ours]
        firsts = {factors[0] for factors in found if factors}
        if not firsts:
            continue
        shapes = tuple(leaves[path].shape for path in match.ours)
        axes = leaves[min(firsts)].ndim - 1
        places = locate_kernels(match.layout, shapes, axes)
        if places is None or len(firsts) > 1 or not match.theirs[0].endswith(".weight"):
            raise ValueError(
                f"{', '.join(match.ours)}: transformers computes {', '.join(match.theirs)} by no "
                "linear layer with an A of its own, so `peft` cannot adapt it"
            )
        name = match.theirs[0].removesuffix(".weight")
        yield Matrix(name, match.ours, shapes, places)


@cache
def locate_kernels(
    layout: AnyLayout, shapes: tuple[tuple[int, ...], ...], num_input_axes: int
) -> Places | None:
    """Return the places of kernels in the matrix that a layout makes of them; None if it is none.

    The layout is applied to the numbers of inputs and of outputs.
    """
    if isinstance(layout, SplitLayout):
        return None
    inputs, outputs, offset = [], [], 0
    for shape in shapes:
        sizes = math.prod(shape[:num_input_axes]), math.prod(shape[num_input_axes:])
        rows, columns = np.indices(sizes, sparse=True)
        inputs.append(np.broadcast_to(rows, sizes).reshape(shape))
        outputs.append(np.broadcast_to(columns + offset, sizes).reshape(shape))
        offset += sizes[1]
    (theirs_in,), (theirs_out,) = map(layout.export_tensors, (inputs, outputs))
    if theirs_in.ndim != 2:
        return None
    is_transposed = bool(np.any(theirs_in != theirs_in[:1]))
    if is_transposed:
        theirs_in, theirs_out = theirs_in.T, theirs_out.T
    is_separate = (theirs_in == theirs_in[:1]).all() and (theirs_out == theirs_out[:, :1]).all()
    return Places(theirs_in[0], theirs_out[:, 0], is_transposed) if is_separate else None


def list_head_matches(model: Any, params: Any, matches: Sequence[Match]) -> list[Match]:
    """Return the matches of what is trained whole: the head, and the pooler that it reads."""
    if not isinstance(model, HeadedConfig):
        return []
    unread = list_unread_modules(model)
    return [
        match
        for match in matches
        if any(
            is_of_head(path, params) or is_outside_layers(f"encoder/{path}") for path in match.ours
        )
        and not match.theirs[0].startswith(unread)
    ]


def is_of_head(path: str, params: Any) -> bool:
    """Return whether a path of `flatten_model` is of the head, outside of the encoder."""
    first = path.partition("/")[0]
    return first != "encoder" and first in params
