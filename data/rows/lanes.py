"""Lanes: row i of a batch continues row i of the batch before, for models that carry a state.

The whole rows of a source form a ring, on which its lanes start at equal distances. Each lane reads
on row by row and never stops, so that B lanes read all n rows once in n / B steps, and each lane
reads the text in its order. The row at step t is a function of t: (lane * n // B + t) mod n.

B rows of the batch   S sources of the mixture
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.rows import hashing
from data.rows.mixture import apportion_places, check_rates
from data.rows.tables import Batch


class Lanes:
    """The row that each lane reads at a step.

    Each source has a share of the lanes, as near to its rate as whole numbers allow.
    """

    def __init__(
        self, rates: Sequence[float], rows_S: np.ndarray, batch_size: int, names: Sequence[str]
    ) -> None:
        """Assign the lanes to the sources.

        Args:
          rates: share of each source.
          rows_S: number of consecutive rows of each source, without overlap.
          batch_size: number of lanes.

        Raises:
          ValueError: the rates are invalid, or a source has fewer rows than lanes.
        """
        check_rates(rates, names)
        if sum(rate > 0 for rate in rates) > batch_size:
            raise ValueError(
                f"data.batch_size={batch_size} lanes for {len(names)} sources: "
                "each takes at least one"
            )
        self.rows_S, lanes_S = np.asarray(rows_S, np.int64), apportion_places(rates, batch_size)
        for name, num_rows, lanes in zip(names, self.rows_S, lanes_S):
            if lanes > num_rows:
                raise ValueError(
                    f"the source {name!r} has {num_rows} rows for {lanes} lanes: "
                    "lower data.batch_size, shorten the rows, or give it the rate 0"
                )
        self.source_B = np.repeat(np.arange(len(names)), lanes_S)
        within_B = np.arange(batch_size) - np.repeat(np.cumsum(lanes_S) - lanes_S, lanes_S)
        self.first_B = within_B * self.rows_S[self.source_B] // lanes_S[self.source_B]

    def __call__(self, step: Any, lane: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (source, round of its ring, row of the source) of lanes at steps.

        All are int64 arrays of the shape of `step` and `lane`.
        """
        source = self.source_B[lane]
        round_, row = np.divmod(self.first_B[lane] + step, self.rows_S[source])
        return source, round_, row


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
