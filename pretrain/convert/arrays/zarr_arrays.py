"""Read arrays of zarr, version 2: a folder of chunks, each compressed by itself, and a description.

Nothing is executed: a chunk is decompressed up to its size and no further.
"""

import itertools
import math
import pathlib
import zlib

import numpy as np

from data.corpus.untrusted import check_own_file, read_bounded
from pretrain.convert.arrays.flax_weights import StoredArray, find_dtype, parse_shape
from pretrain.convert.safe_folder import FolderError, read_json


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
