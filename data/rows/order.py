"""Rows on lanes: row i of a batch goes on where row i of the batch before ended, for models that keep a state between steps.

The whole rows of a part of the mixture form a ring, on which its lanes stand at equal distances. Each goes on row by row and never
stops, so that n rows on B lanes are all read once in n / B steps, and each lane reads the text in its order. The row at step t is
a function of t: (lane * n // B + t) mod n.

B rows of the batch   S parts of the mixture
"""

import numpy as np

from data.rows.mixture import shares


class Lanes:
    """Which row each lane reads at a step. A part of the mixture has a share of the lanes, as near to its rate as whole numbers come."""

    def __init__(self, rates, rows_S, batch_size, names):
        """rows_S: rows of each part that follow one another without overlap. Raises ValueError where a part has fewer rows than lanes."""
        if len(rates) != len(names):
            raise ValueError(
                f"data.rates has {len(rates)} values, but there are {len(names)} sources: {', '.join(names)}"
            )
        if min(rates) < 0 or not 0 < sum(rates) < np.inf:
            raise ValueError(
                f"data.rates={tuple(rates)}: rates are 0 or more, and one of them above 0"
            )
        if sum(rate > 0 for rate in rates) > batch_size:
            raise ValueError(
                f"data.batch_size={batch_size} lanes for {len(names)} sources: each takes at least one"
            )
        self.rows_S, lanes_S = np.asarray(rows_S, np.int64), shares(rates, batch_size)
        for name, rows, lanes in zip(names, self.rows_S, lanes_S):
            if lanes > rows:
                raise ValueError(
                    f"the source {name!r} has {rows} rows for {lanes} lanes: lower data.batch_size, shorten the rows, or give it the rate 0"
                )
        self.part_B = np.repeat(np.arange(len(names)), lanes_S)
        within_B = np.arange(batch_size) - np.repeat(np.cumsum(lanes_S) - lanes_S, lanes_S)
        self.first_B = within_B * self.rows_S[self.part_B] // lanes_S[self.part_B]

    def __call__(self, step, lane):
        """(part of the mixture, round of its ring, row of the part) of lanes at steps: int64 arrays of one shape."""
        part = self.part_B[lane]
        round_, row = np.divmod(self.first_B[lane] + step, self.rows_S[part])
        return part, round_, row
