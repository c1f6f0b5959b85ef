"""Import of a checkpoint that is a folder of zarr arrays, one a parameter, without a config.json.

`target.encoder.layers_0.attention.query.kernel/` is such an array; what does not begin with
`target.`, such as the state of the optimizer, is not read. The families whose record has an
`ArrayMap` are imported. Their sizes follow from the arrays; the vocabulary is not in the folder.
An array of zarr, version 2, is a description and chunks, each compressed by itself. Nothing is
executed: a chunk is decompressed up to its size and no further.
"""

import functools
import itertools
import math
import os
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.corpus.untrusted import check_own_file, read_bounded
from data.vocabulary.load import read_vocabulary
from pretrain.convert.arrays.flax_weights import (
    MAX_ARRAYS,
    ForeignTensors,
    StoredArray,
    find_dtype,
    parse_shape,
    transpose_array,
)
from pretrain.convert.pretrained import CONVERTERS
from pretrain.convert.read_write import OpenedModel
from pretrain.convert.safe_folder import FolderError, read_json
from pretrain.families import FAMILIES
from pretrain.families.array_map import ArrayMap, ArrayPlace


def open_zarr(path: pathlib.Path) -> StoredArray:
    """Return a zarr array (version 2), whose chunks are read later.

    Raises FolderError if its description is not valid, or it is a link to another place.
    """
    if path.resolve() != path.parent.resolve() / path.name:
        raise FolderError(f"{path}: is a link to {path.resolve()}; copy the folder itself there")
    about = read_json(path / ".zarray", missing="it describes an array")
    try:
        shape, chunks = (parse_shape(about.get(key)) for key in ("shape", "chunks"))
        dtype = find_dtype(about.get("dtype"))
        if len(chunks) != len(shape) or not all(chunks):
            raise ValueError(f"its chunks {list(chunks)} do not fit the shape {list(shape)}")
        if about.get("order", "C") != "C" or about.get("filters"):
            raise ValueError("its order is not C, or it has filters")
        compressor = about.get("compressor")
        kind = compressor.get("id") if isinstance(compressor, dict) else compressor
        if kind not in (None, "gzip", "zlib"):
            raise ValueError(f"its compressor is {kind!r:.80}; gzip, zlib and none are read")
    except ValueError as error:
        raise FolderError(f"{path / '.zarray'}: {error}") from error
    separator = "/" if about.get("dimension_separator") == "/" else "."
    return StoredArray(
        shape, dtype, lambda: read_chunks(path, shape, chunks, dtype, kind, separator)
    )


def read_chunks(
    path: pathlib.Path,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype,
    compressor: str | None,
    separator: str,
) -> np.ndarray:
    """Return the array of a folder of chunks.

    Raises FolderError, which names the file, if a chunk is missing, damaged or of another size.
    """
    array = np.empty(shape, dtype)
    size = math.prod(chunks) * dtype.itemsize
    if math.prod(chunks) > 4 * max(1, array.size):
        raise FolderError(
            f"{path}: its chunks {list(chunks)} are larger than the array {list(shape)}"
        )
    grid = [range(-(-length // chunk)) for length, chunk in zip(shape, chunks, strict=True)]
    for place in itertools.product(*grid):
        file = path / (separator.join(map(str, place)) or "0")
        try:
            check_own_file(file)
            content = decompress(read_bounded(file, size + size // 8 + 4096), compressor, size)
        except FileNotFoundError:
            raise FolderError(f"{file}: is missing; copy the checkpoint again") from None
        except (ValueError, zlib.error) as error:
            raise FolderError(f"{file}: {error}") from error
        if len(content) != size:
            raise FolderError(f"{file}: has {len(content):,} bytes, expected {size:,}")
        starts = [i * chunk for i, chunk in zip(place, chunks)]
        part = array[tuple(slice(a, a + chunk) for a, chunk in zip(starts, chunks))]
        part[...] = np.frombuffer(content, dtype).reshape(chunks)[tuple(map(slice, part.shape))]
    return array


def decompress(content: bytes, compressor: str | None, size: int) -> bytes:
    """Return the content of a chunk, of at most one byte more than `size`."""
    if compressor is None:
        return content
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # with the header of gzip or of zlib
    found = reader.decompress(content, size + 1)
    if len(found) <= size and not reader.eof:
        raise ValueError("its compressed data is cut off")
    return found


TARGET = "target."  # begins the names of the parameters


def is_array_folder(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has the arrays of a checkpoint."""
    path = pathlib.Path(folder)
    return path.is_dir() and any(path.glob(f"{TARGET}*/.zarray"))


def open_array_model(
    folder: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None
) -> OpenedModel:
    """Open a checkpoint of arrays.

    Args:
      vocabulary: the vocabulary of the model, such as spiece.model; None: in the folder.

    Raises:
      FolderError: an array is damaged, missing or of another model, or there is no vocabulary.
    """
    folder = pathlib.Path(folder)
    family = next(record for record in FAMILIES.values() if record.arrays)
    hf_map, array_map = family.require_hugging_face(), family.arrays
    assert array_map is not None
    try:
        encoding = read_vocabulary(vocabulary or folder)
    except FileNotFoundError as error:
        raise FolderError(
            f"{error}; a checkpoint of {array_map.program} has none: name the model's, such as its "
            "spiece.model, by --vocabulary"
        ) from error
    arrays = keep_last_read(list_arrays(folder))
    try:
        config, located = locate_tensors(family.config, array_map, arrays)
        tensors: Any = ForeignTensors(
            folder, {name: find_array(arrays, place) for name, place in located.items()}
        )
    except ValueError as error:
        raise FolderError(f"{folder}: {error}") from error
    if encoding.size > config.vocab:
        raise FolderError(
            f"{vocabulary or folder}: has {encoding.size} ids, and the model {config.vocab} "
            "embeddings: the vocabulary is of another model"
        )
    converter = CONVERTERS[hf_map.model_type]
    return OpenedModel(folder, (hf_map.architecture,), converter, config, tensors, encoding)


def locate_tensors(
    kind: Any, array_map: ArrayMap, arrays: Mapping[str, StoredArray]
) -> tuple[Any, dict[str, ArrayPlace]]:
    """Return the configuration, and {name in `transformers`: its place} of all tensors.

    Raises:
      ValueError: an array is missing, has no place in the model, or has other axes.
    """
    shapes = {name: array.shape for name, array in arrays.items()}
    try:
        config = kind(**array_map.read_sizes(shapes))
        located = array_map.locate_tensors(config, shapes)
    except KeyError as error:
        raise ValueError(f"has no array {TARGET}{error.args[0]}") from error
    needed = {place.array for place in located.values()}
    if missing := sorted(needed - arrays.keys()):
        raise ValueError(f"has no array {TARGET}{missing[0]}")
    if unread := sorted(arrays.keys() - needed):
        raise ValueError(
            f"has an array {TARGET}{unread[0][:200]}, which a {kind.__name__} does not have"
        )
    return config, located


def find_array(arrays: Mapping[str, StoredArray], place: ArrayPlace) -> StoredArray:
    """Return the array at a place: of one layer, as a vector or a matrix.

    Raises ValueError, which names the array, for other axes.
    """
    whole = array = arrays[place.array]
    layer = place.layer
    if layer is not None:
        if len(whole.shape) < 2 or layer >= whole.shape[1]:
            raise ValueError(
                f"{TARGET}{place.array} is {list(whole.shape)}; its second axis is the layers"
            )
        shape = (whole.shape[0], *whole.shape[2:])
        array = StoredArray(shape, whole.dtype, lambda: whole.read().take(layer, axis=1))
    if len(array.shape) == 3 and place.joined is not None:  # the heads have an axis of their own
        split, first = array, place.joined
        sizes = list(split.shape)
        sizes[first : first + 2] = [sizes[first] * sizes[first + 1]]
        array = StoredArray(tuple(sizes), split.dtype, lambda: split.read().reshape(sizes))
    if len(array.shape) != place.axes:
        raise ValueError(
            f"{TARGET}{place.array} is {list(whole.shape)}, not {place.axes} axes for a layer"
        )
    return transpose_array(array) if place.transposed else array


def list_arrays(folder: pathlib.Path) -> dict[str, StoredArray]:
    """Return {name: array} of the parameters, whose shapes were read.

    Raises FolderError, which names the array, if one is damaged or stored in an unknown way.
    """
    names = sorted(
        entry.name for entry in folder.iterdir() if entry.name.startswith(TARGET) and entry.is_dir()
    )
    if len(names) > MAX_ARRAYS:
        raise FolderError(f"{folder}: has {len(names):,} arrays; at most {MAX_ARRAYS:,} are read")
    return {name.removeprefix(TARGET): open_zarr(folder / name) for name in names}


def keep_last_read(arrays: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
    """Return arrays of which the one that was read last stays in memory, for its other layers."""
    last: dict[str, np.ndarray] = {}

    def read(name: str) -> np.ndarray:
        if name not in last:
            last.clear()
            last[name] = arrays[name].read()
        return last[name]

    return {
        name: StoredArray(array.shape, array.dtype, functools.partial(read, name))
        for name, array in arrays.items()
    }
