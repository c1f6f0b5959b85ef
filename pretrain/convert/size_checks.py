"""Compare the sizes in a config.json with its tensors, before a model is made of them.

A file of a few bytes may name 100,000 layers, and tracing so many takes minutes. Every size of a
model is a dimension of one of its tensors, and every layer has tensors of its own unless layers
share them; so tensors bound the sizes, and the size of their files bounds the tensors.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pretrain.host.host_memory import count_physical_bytes

MAX_SIZE = 1 << 24  # of any dimension
MAX_LAYERS = 1000


def check_model_sizes(
    config: Any, keys: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ValueError, which names a key and its value, for sizes that the tensors do not have.

    Args:
      keys: {our field: its key in config.json}.
      shapes: {name: shape of a tensor}.
    """
    model = config.backbone
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if type(value) is not int or field.name not in keys:
            continue
        key = keys[field.name]
        if value > MAX_SIZE:
            raise ValueError(f"{key} is {value:,}; at most {MAX_SIZE:,} is read")
        if field.name.endswith("depth"):
            _check_depth(key, value, len(shapes), model.shares_layers)
        elif field.name not in model.not_in_tensors and value > largest:
            raise ValueError(
                f"{key} is {value:,}, and no dimension of the tensors is larger than {largest:,}; "
                "does config.json belong to these weights?"
            )
    _check_heads(model, keys)


def _check_heads(model: Any, keys: Mapping[str, str]) -> None:
    """Raise ValueError unless the width divides into heads, and the heads into groups.

    A width that does not is fine where a head's width is a size of its own.
    """
    for prefix in ("", "generator_"):
        width, heads = f"{prefix}width", f"{prefix}num_heads"
        if not {width, heads} <= keys.keys() or "head_width" in keys:
            continue
        if getattr(model, width) % getattr(model, heads):
            raise ValueError(
                f"{keys[width]} is {getattr(model, width):,}, which does not divide into the "
                f"{getattr(model, heads):,} heads of {keys[heads]}"
            )
    if "num_key_heads" in keys and model.num_heads % model.num_key_heads:
        raise ValueError(
            f"{keys['num_heads']} is {model.num_heads:,}, which does not divide into groups for "
            f"the {model.num_key_heads:,} key heads of {keys['num_key_heads']}"
        )


def _check_depth(key: str, depth: int, num_tensors: int, is_shared: bool) -> None:
    """Raise ValueError for more layers than are read, or than there are tensors."""
    if depth > MAX_LAYERS:
        raise ValueError(f"{key} is {depth:,}; at most {MAX_LAYERS:,} layers are read")
    if depth > num_tensors and not is_shared:
        raise ValueError(
            f"{key} is {depth:,}, and there are {num_tensors:,} tensors; does config.json belong "
            "to these weights?"
        )


def check_fits_memory(num_values: int) -> None:
    """Raise ValueError if this machine has no memory for so many float32 values."""
    memory = count_physical_bytes()
    if 4 * num_values > memory:
        raise ValueError(
            f"its tensors have {num_values:,} values, which take {4 * num_values:,} bytes as "
            f"float32; this machine has {memory:,} bytes of memory"
        )
