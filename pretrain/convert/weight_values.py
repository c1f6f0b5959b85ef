"""The values of weights: whether they are finite, and their rounding to 16 bits in an export."""

from collections.abc import Iterator, Mapping

import ml_dtypes
import numpy as np

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
LONGEST = 200  # [characters] part of a name from a file that a message shows


class FiniteTensors(Mapping[str, np.ndarray]):
    """A mapping of tensors that raises ValueError when a tensor that is not finite is read.

    Only tensors that a model reads are checked.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        check_finite(name, tensor, "--allow-nonfinite imports it as it is.")
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def check_finite(name: str, tensor: np.ndarray, remedy: str) -> None:
    """Raise ValueError if a tensor has NaN or infinite values, or values too large for float32."""
    tensor = np.asarray(tensor)
    if tensor.dtype.kind in "biu":
        return
    with np.errstate(over="ignore"):
        values = tensor.astype(np.float32)
    if not np.isfinite(values).all():
        nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        raise ValueError(
            f"the tensor {make_printable(name)} holds {nan:,} NaN and {infinite:,} infinite values "
            f"of {values.size:,} as float32. A model with it computes nothing of use. {remedy}"
        )


def make_printable(name: object) -> str:
    """Return a name from a file for a message, without control characters and of limited length."""
    text = "".join(letter if letter.isprintable() else "?" for letter in str(name)[: LONGEST + 1])
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def round_tensors(tensors: dict[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """Return {name: array} with all floating-point arrays rounded to the nearest value of `dtype`.

    In float16, values below 3e-8 become 0. The argument is emptied, so that each array is in memory
    only once.

    Raises:
      ValueError: a finite value would become infinite (float16 ends at 65,504); names the tensor.
    """
    kind, rounded = TYPES[dtype], {}
    for name in list(tensors):
        tensor = np.asarray(tensors.pop(name))
        if tensor.dtype.kind not in "biu" and tensor.dtype != kind:
            with np.errstate(over="ignore"):
                narrow = tensor.astype(kind)
            overflow = np.isfinite(tensor) & ~np.isfinite(narrow.astype(np.float32))
            if overflow.any():
                largest = np.abs(tensor[overflow]).max()
                raise ValueError(
                    f"the tensor {make_printable(name)} holds {largest:.6g}, which "
                    f"{dtype} has no number for; export it as bfloat16 or float32 (--dtype)"
                )
            tensor = narrow
        rounded[name] = tensor
    return rounded


class PrefixedTensors(Mapping[str, np.ndarray]):
    """Tensors whose names have lost a prefix that all of them have."""

    def __init__(self, tensors: Mapping[str, np.ndarray], prefix: str) -> None:
        self._tensors, self._prefix = tensors, prefix

    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
