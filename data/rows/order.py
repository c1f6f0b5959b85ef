"""Keys of the order of rows, the rows of evaluation batches, and rows that begin with zeros.

In evaluation on lanes (data/rows/lanes.py) each lane has consecutive rows of a source, once: lane b
begins at row b * T, where T is the number of batches that the source takes.

B rows of the batch   N batches
"""

from typing import Any

import numpy as np

from data.rows import hashing
from data.rows.tables import Batch

ORDER_KEY, MIXTURE_KEY, DRAW_KEY, EVALUATION_KEY = range(4)  # purposes of a key


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


def restart_rows(objective: Any, batch: Batch, key_B: np.ndarray) -> None:
    """Let some rows on lanes of a batch begin with a state of zeros, as training reads them.

    From zeros, with which each text of a task begins, a model has a higher loss if its state was
    not zeros again after its first step. Melis et al. (2018), section 4, restart with probability
    0.01.

    Args:
      objective: its `zero_state_rate` is the probability.
      batch: the rows; `is_continued` is changed in place.
      key_B: the keys of their draws.
    """
    if "is_continued" in batch:
        draw_B1 = hashing.draw_uniforms(hashing.derive_keys(key_B, hashing.ZERO_STATE), 1)
        batch["is_continued"] &= draw_B1[:, 0] >= objective.zero_state_rate


def derive_evaluation_keys(row_B: np.ndarray) -> np.ndarray:
    """Return the keys of the masks, spans or pairs of rows in evaluation: uint64 [B]."""
    return hashing.derive_keys(0, EVALUATION_KEY, row_B)
