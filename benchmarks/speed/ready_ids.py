"""A stand-in for the tokenizer of `DataCollatorForLanguageModeling`; for the peers' environment."""

# torch is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


class ReadyIdsTokenizer:
    """A tokenizer that only has the ids of [MASK] and [PAD] and stacks rows of one length."""

    padding_side, mask_token, pad_token = "right", "[MASK]", "[PAD]"

    def __init__(self, mask: int, pad: int, size: int) -> None:
        """Set the ids of [MASK] and [PAD] and the size of the vocabulary."""
        self.mask_token_id, self.pad_token_id, self.size = mask, pad, size

    def __len__(self) -> int:
        return self.size

    def convert_tokens_to_ids(self, token: str) -> int:
        """Return the id of [MASK], the only token that the collator asks for."""
        return self.mask_token_id

    def pad(self, rows: Sequence[Mapping[str, Sequence[int]]], **_: Any) -> dict[str, torch.Tensor]:
        """Return the rows as one tensor per key."""
        return {key: torch.tensor(np.array([row[key] for row in rows])) for key in rows[0]}
