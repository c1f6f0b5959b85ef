"""The dtype of exported weights: float32, as they are trained, or rounded to 16 bits."""

import ml_dtypes
import numpy as np

from pretrain.convert.finite import make_printable

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


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
