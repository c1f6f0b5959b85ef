"""Weights that Flax wrote as `flax_model.msgpack`, by the names of PyTorch.

The file is next to a config.json. A kernel [in, out] is a `weight` [out, in] in PyTorch; an
`embedding` or `scale` is a `weight` as it is.

Nothing is unpickled or executed: the arrays are bytes within the file, of the sizes that it names.
"""

import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import msgpack
import numpy as np

from data.corpus.untrusted import check_own_file, read_bounded
from pretrain.convert.safe_folder import WEIGHTS, FolderError
from pretrain.convert.size_checks import MAX_SIZE, check_fits_memory
from pretrain.host.host_memory import count_physical_bytes

FLAX_WEIGHTS = "flax_model.msgpack"
TYPES = {  # {name in a file: dtype}
    "float32": np.dtype("<f4"),
    "<f4": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "<f2": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
FORMATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
MAX_ARRAYS, MAX_DIMS = 100_000, 8
ARRAY_CODE = 1  # of an array among the extension types of flax.serialization


class StoredArray(NamedTuple):
    """An array of a file: its shape, its dtype, and how it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


class ForeignTensors(Mapping[str, np.ndarray]):
    """Tensors under the names of `transformers`, as float32; each is read when it is accessed.

    folder: where they are.
    shapes: {name: shape}.
    """

    def __init__(self, folder: pathlib.Path, arrays: Mapping[str, StoredArray]) -> None:
        self.folder, self._arrays = folder, arrays
        self.shapes = {name: array.shape for name, array in arrays.items()}
        try:
            check_fits_memory(sum(map(math.prod, self.shapes.values())))
        except ValueError as error:
            raise FolderError(f"{folder}: {error}") from None

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name].read().astype(np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def list_formats(self) -> tuple[str, ...]:
        """Return the floating-point formats of the tensors, such as ("BF16", "F32")."""
        names = {array.dtype.name for array in self._arrays.values()}
        return tuple(sorted(FORMATS[name] for name in names))


# ---- flax_model.msgpack --------------------------------------------------------


def has_flax_weights(folder: pathlib.Path) -> bool:
    """Return whether a folder has weights of Flax, and no safetensors."""
    return (folder / FLAX_WEIGHTS).exists() and not any(folder.glob(f"{WEIGHTS}*"))


def open_flax_weights(folder: pathlib.Path) -> ForeignTensors:
    """Return the tensors of a folder's `flax_model.msgpack`, under the names of PyTorch.

    Raises:
      FolderError: the file is damaged, or holds something else than arrays of floats by name.
    """
    path = folder / FLAX_WEIGHTS
    arrays = dict(flatten_arrays(read_msgpack(path), path))
    return ForeignTensors(folder, dict(rename_flax_array(*item) for item in arrays.items()))


def rename_flax_array(name: str, array: StoredArray) -> tuple[str, StoredArray]:
    """Return the PyTorch name of an array of Flax, and the array in its layout."""
    *path, last = name.split("/")
    if last == "kernel" and len(array.shape) == 2:
        array = transpose_array(array)
    last = "weight" if last in ("kernel", "embedding", "scale") else last
    return ".".join([*path, last]), array


def transpose_array(array: StoredArray) -> StoredArray:
    """Return a matrix with its axes exchanged."""
    return StoredArray(array.shape[::-1], array.dtype, lambda: array.read().T)


def read_msgpack(path: pathlib.Path) -> Any:
    """Return the tree in a msgpack file, with a `StoredArray` for each array."""
    try:
        check_own_file(path)
        content = read_bounded(path, count_physical_bytes())
        return msgpack.unpackb(
            content,
            ext_hook=read_extension,
            raw=False,
            strict_map_key=True,
            max_map_len=MAX_ARRAYS,
            max_array_len=MAX_ARRAYS,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise FolderError(f"{path}: not a whole msgpack file of Flax ({error!s:.200})") from error


def read_extension(code: int, content: bytes) -> StoredArray:
    """Return an array of a msgpack file; raise ValueError for anything else."""
    if code != ARRAY_CODE:
        raise ValueError(f"it holds an extension type {code}; only arrays are read")
    found = msgpack.unpackb(content, raw=True, max_array_len=MAX_DIMS)
    if not (isinstance(found, list) and len(found) == 3 and isinstance(found[2], bytes)):
        raise ValueError("an array in it is not a shape, a type and bytes")
    sizes, name, data = found
    dtype = find_dtype(name.decode("ascii", "replace") if isinstance(name, bytes) else name)
    shape = parse_shape(sizes)
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of {sizes} in it has {len(data):,} bytes")
    return StoredArray(shape, dtype, lambda: np.frombuffer(data, dtype).reshape(shape))


def find_dtype(name: Any) -> np.dtype:
    """Return the dtype of a name in a file; raise ValueError unless it is a float that is read."""
    if not isinstance(name, str) or name not in TYPES:
        raise ValueError(
            f"an array is stored as {name!r:.80}; float32, float16 and bfloat16 are read"
        )
    return TYPES[name]


def parse_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape; raise ValueError unless it is a list of a few sizes that are read."""
    if not isinstance(shape, list) or len(shape) > MAX_DIMS:
        raise ValueError(f"the shape {shape!r:.80} is not a list of at most {MAX_DIMS} sizes")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in shape):
        raise ValueError(f"the shape {shape!r:.80} has a size that is not from 0 to {MAX_SIZE:,}")
    return tuple(shape)


def flatten_arrays(
    tree: Any, path: pathlib.Path, name: str = ""
) -> Iterator[tuple[str, StoredArray]]:
    """Yield (name, array) of the arrays of a tree of objects, with / between the names.

    Raises FolderError for anything else in it. Arrays in parts, as Flax writes arrays of more than
    1 GB, are joined.
    """
    if isinstance(tree, StoredArray):
        yield name, tree
    elif not isinstance(tree, dict):
        raise FolderError(f"{path}: {name[:200] or 'it'} is {type(tree).__name__}, not an array")
    elif "__msgpack_chunked_array__" in tree:
        yield name, join_parts(tree, path, name)
    else:
        for key, value in tree.items():
            yield from flatten_arrays(value, path, f"{name}/{key}" if name else str(key))


def join_parts(tree: Mapping[str, Any], path: pathlib.Path, name: str) -> StoredArray:
    """Return an array that Flax wrote in parts. Raises FolderError if parts are missing."""
    sizes, parts = (
        list(tree[key].values()) if isinstance(tree.get(key), dict) else []
        for key in ("shape", "chunks")
    )
    try:
        shape = parse_shape(sizes)
        if not parts or not all(isinstance(part, StoredArray) for part in parts):
            raise ValueError("its parts are no arrays")
        if sum(math.prod(part.shape) for part in parts) != math.prod(shape):
            raise ValueError("parts of it are missing")
    except ValueError as error:
        raise FolderError(f"{path}: {name[:200]}: {error}") from None
    return StoredArray(
        shape,
        parts[0].dtype,
        lambda: np.concatenate([part.read().ravel() for part in parts]).reshape(shape),
    )
