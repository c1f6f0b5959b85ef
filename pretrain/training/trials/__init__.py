"""Which hand-made operations a run's program may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

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


TRUSTING = Trust()
