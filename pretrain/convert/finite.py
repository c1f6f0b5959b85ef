"""Refusing weights with NaN or infinite values, by the name of their tensor."""

from collections.abc import Mapping

import numpy as np

LONGEST = 200  # characters of a name from a file in a message


class FiniteTensors(Mapping):
    """`tensors`, of which reading one that is not finite in float32 raises ValueError. Only what a model takes is read, and so checked."""

    def __init__(self, tensors):
        self._tensors = tensors

    def __getitem__(self, name):
        tensor = self._tensors[name]
        check_finite(name, tensor, "--allow-nonfinite imports it as it is.")
        return tensor

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)


def check_finite(name, tensor, remedy):
    """Raise ValueError with the tensor's name where it holds NaN or infinite values, or values too large for float32."""
    tensor = np.asarray(tensor)
    if tensor.dtype.kind in "biu":
        return
    with np.errstate(over="ignore"):
        values = tensor.astype(np.float32)
    if not np.isfinite(values).all():
        nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        raise ValueError(
            f"the tensor {printable(name)} holds {nan:,} NaN and {infinite:,} infinite values of {values.size:,} as float32. A model with "
            f"it computes nothing of use. {remedy}"
        )


def printable(name):
    """A name from a file, without control characters and of bounded length, for a message."""
    name = "".join(letter if letter.isprintable() else "?" for letter in str(name)[: LONGEST + 1])
    return name if len(name) <= LONGEST else name[:LONGEST] + "..."
