"""The names of a family in checkpoints of zarr arrays, which have no config.json."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class ArrayPlace(NamedTuple):
    """Where a checkpoint of arrays has a tensor of `transformers`.

    array: name of the array.
    layer: which of its second axis; None: the array has one layer.
    axes: number of axes of a layer: 1 or 2.
    joined: the first of two axes that are one in `transformers`, if there are three; None: none.
    transposed: whether the axes are exchanged.
    """

    array: str
    layer: int | None = None
    axes: int = 2
    joined: int | None = None
    transposed: bool = True


class ArrayMap(NamedTuple):
    """The names of a family in checkpoints of zarr arrays.

    Its folders may also have their weights as Flax wrote them, in flax_model.msgpack.

    program: what writes such checkpoints.
    read_sizes: {array: shape} -> our fields; KeyError names an array that is missing, ValueError
      says what does not fit.
    locate_tensors: (config, {array: shape}) -> {name in `transformers`: its place}.
    """

    program: str
    read_sizes: Callable[[Mapping[str, tuple[int, ...]]], dict[str, Any]]
    locate_tensors: Callable[[Any, Mapping[str, tuple[int, ...]]], dict[str, ArrayPlace]]
