"""Extractive question answering: the first and the last token of the answer.

Devlin et al. (2018), section 4.2.

A row is `[CLS] question [SEP] context [SEP]`; [CLS] stands for "no answer here" (section 4.3).

B batch   L length   D width
"""

from functools import partial

import jax

from models.heads.base import HeadedModel
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead


class SpanReader(HeadedModel):
    """Two scores of each token: as the first of the answer, and as the last."""

    def setup(self) -> None:
        """Make encoder and head."""
        super().setup()
        self.span = ClassHead(2, partial(Dropout, self.config.dropout, ops=self.ops), self.ops)

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the answer's first and last token, float32 [B, L, 2]."""
        x_BLD, _ = self.encode_rows(token_ids, attention_mask, token_type_ids, train)
        return self.span(x_BLD, train)
