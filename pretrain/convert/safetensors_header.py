"""Read the header of a .safetensors file, and check it against the size of the file.

The file is 8 bytes with the length of the header, the header {name: {"dtype", "shape",
"data_offsets"}} as JSON, and the data of all tensors, one after the other. Names and sizes are
not trusted, so they are compared with what is there before anything is allocated.
"""

import math
import os
import pathlib
from typing import Any, NamedTuple, TypeGuard

from data.corpus.untrusted import check_own_file, parse_bounded_json

# Bytes and values of JSON of a header. That of a model of a thousand layers has 1.5 MB.
MAX_HEADER_BYTES = 16 << 20
MAX_HEADER_VALUES = 1_000_000
MAX_DIMENSION = 1 << 40
SIZES = {  # bytes of a value
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}


class TensorEntry(NamedTuple):
    """A tensor as a header describes it."""

    dtype: str
    shape: tuple[int, ...]


def read_header(path: pathlib.Path) -> dict[str, TensorEntry]:
    """Return {name: entry} of a file whose tensors fill it exactly.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is a link out of its folder or no regular file, or if the header is
        malformed, too long, or does not fit the file.
    """
    check_own_file(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return _parse_header(file, size)
        except ValueError as error:
            raise ValueError(
                f"{path}: not a whole .safetensors file of {size:,} bytes ({error}); fetch it again"
            ) from None


def _parse_header(file: Any, size: int) -> dict[str, TensorEntry]:
    """Return the entries of an open file; raise ValueError, which names no file."""
    if size < 8:
        raise ValueError("it has no length of a header")
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise ValueError(f"its header should have {length:,} bytes")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header has {length:,} bytes; at most {MAX_HEADER_BYTES:,} are read")
    header = parse_bounded_json(file.read(length), "its header", MAX_HEADER_VALUES)
    if not isinstance(header, dict):
        raise ValueError(f"its header holds {type(header).__name__}, expected an object")
    header.pop("__metadata__", None)
    ranges = sorted((*_check_entry(name, entry), name) for name, entry in header.items())
    end = 0
    for start, stop, name in ranges:
        if start != end:
            raise ValueError(
                f"the data of {name[:200]!r} begin at byte {start:,}, and those before end at "
                f"{end:,}"
            )
        end = stop
    if end != size - 8 - length:
        raise ValueError(f"its tensors have {end:,} bytes, its data {size - 8 - length:,}")
    return {
        name: TensorEntry(entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()
    }


def _check_entry(name: str, entry: Any) -> tuple[int, int]:
    """Return the range of a tensor's bytes; raise ValueError if its entry contradicts itself."""
    where = f"the tensor {name[:200]!r}"
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        raise ValueError(f"{where} has no dtype")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _is_counts(shape, 64) or not _is_counts(offsets, 2):
        raise ValueError(f"{where} has shape {shape!r:.80} and data_offsets {offsets!r:.80}")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{where} has data_offsets {offsets!r:.80}")
    if any(number > MAX_DIMENSION for number in shape):
        raise ValueError(f"{where} has shape {shape!r:.80}")
    width = SIZES.get(entry["dtype"])
    if width and math.prod(shape) * width != offsets[1] - offsets[0]:
        raise ValueError(
            f"{where} is {entry['dtype']} {shape!r:.80}, and has {offsets[1] - offsets[0]:,} bytes"
        )
    return offsets[0], offsets[1]


def _is_counts(value: Any, most: int) -> TypeGuard[list[int]]:
    """Return whether a value of JSON is a list of at most `most` integers from 0 on."""
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(number) is int and number >= 0 for number in value)
    )
