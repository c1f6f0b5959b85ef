"""The type of exported weights: float32, as they are trained, or rounded to one of 16 bits."""

import ml_dtypes
import numpy as np

from pretrain.convert.finite import printable

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def round_tensors(tensors, dtype: str) -> dict[str, np.ndarray]:
    """Return {name: array} with all fractions rounded to `dtype`, to the nearest; `tensors` is emptied, so that each is held once.

    Raises ValueError, which names the tensor, where a finite value would become infinite: float16 ends at 65,504. Its values below
    3e-8 become 0.
    """
    kind, rounded = TYPES[dtype], {}
    for name in list(tensors):
        tensor = np.asarray(tensors.pop(name))
        if tensor.dtype.kind not in "biu" and tensor.dtype != kind:
            with np.errstate(over="ignore"):
                narrow = tensor.astype(kind)
            lost = np.isfinite(tensor) & ~np.isfinite(narrow.astype(np.float32))
            if lost.any():
                raise ValueError(
                    f"the tensor {printable(name)} holds {np.abs(tensor[lost]).max():.6g}, which {dtype} has no number for; "
                    "export it as bfloat16 or float32 (--dtype)"
                )
            tensor = narrow
        rounded[name] = tensor
    return rounded
