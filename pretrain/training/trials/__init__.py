"""Which hand-made operations a run's program may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pretrain.kernels.attention.choice import AUTOMATIC

# Hand-made operations that a run may do without, in addition to the kernels of attention.
EXCHANGE, LOSS, GATHERS = "gradient exchange", "vocabulary loss in parts", "gathers"


class Trust(NamedTuple):
    """Which hand-made operations a program may use.

    Attributes:
      find_doubt: as in `AttentionRules`.
      refused: {operation: why it is left out, the end of a sentence that begins with its name}.
      is_strict: whether a call of attention that `train.attention` cannot serve is an error.
    """

    find_doubt: Callable[..., str | None] = AUTOMATIC.find_doubt
    refused: Mapping[str, str] = MappingProxyType({})
    is_strict: bool = False

    def list_refused(self, objective: Any) -> Mapping[str, str]:
        """Return `refused`, and the exchange of gradients if a loss compares all rows."""
        if not objective.compares_rows:
            return self.refused
        return {**self.refused, EXCHANGE: "the loss compares the rows of all devices"}


TRUSTING = Trust()
