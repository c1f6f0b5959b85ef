"""Keys of the order of rows, and the rows of evaluation batches.

In evaluation on lanes (data/rows/lanes.py) each lane has consecutive rows of a source, once: lane b
begins at row b * T, where T is the number of batches that the source takes.

B rows of the batch   N batches
"""

import numpy as np

from data.rows import hashing

ORDER_KEY, MIXTURE_KEY, DRAW_KEY, EVALUATION_KEY, RATE_KEY = range(5)  # purposes of a key


def locate_evaluation_rows(
    step_N: np.ndarray, rows_N: np.ndarray, place_B: np.ndarray, batch_size: int, order: str
) -> np.ndarray:
    """Return the row of its source at each place of evaluation batches: int64 [N, B].

    A number from `rows_N` on is no row: the place is only filled up.

    Args:
      step_N: number of batches of the source before each batch.
      rows_N: number of rows of the source of each batch.
      place_B: numbers of the places.
      batch_size: number of all places.
      order: "lanes", or "shuffled", which evaluation reads in the order of the source.
    """
    if order != "lanes":
        return step_N[:, None] * batch_size + place_B
    num_steps_N = -(-rows_N // batch_size)
    return num_steps_N[:, None] * place_B + step_N[:, None]


def derive_evaluation_keys(row_B: np.ndarray) -> np.ndarray:
    """Return the keys of the masks, spans or pairs of rows in evaluation: uint64 [B]."""
    return hashing.derive_keys(0, EVALUATION_KEY, row_B)
