"""What `DataCollatorForLanguageModeling` asks of a tokenizer, for ids that are there already; runs in the peers' environment."""

import numpy as np
import torch


class Ready:
    """A tokenizer in name: it tells the ids of [MASK] and [PAD] and stacks rows of one length."""

    padding_side, mask_token, pad_token = "right", "[MASK]", "[PAD]"

    def __init__(self, mask, pad, size):
        self.mask_token_id, self.pad_token_id, self.size = mask, pad, size

    def __len__(self):
        return self.size

    def convert_tokens_to_ids(self, token):
        return self.mask_token_id

    def pad(self, rows, **_):
        return {key: torch.tensor(np.array([row[key] for row in rows])) for key in rows[0]}
