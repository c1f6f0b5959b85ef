"""Checks that weights are finite; an error names the tensor."""

from collections.abc import Iterator, Mapping

import numpy as np

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
