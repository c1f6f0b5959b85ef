"""Token classification: the tag of each word, at its first token (Devlin et al. 2018, section 5.3).

The head is one linear map of the last hidden states with dropout, as in Hugging Face transformers.

B batch   L length   D width   C tags
"""

from functools import partial

import jax

from models.config.tagger import TaggerConfig
from models.heads.base import HeadedModel
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead


class Tagger(HeadedModel):
    """An encoder with a logit for each tag at each token."""

    config: TaggerConfig

    def setup(self) -> None:
        """Make encoder and head."""
        super().setup()
        dropout = partial(Dropout, self.config.dropout, ops=self.ops)
        self.classifier = ClassHead(self.config.num_outputs, dropout, self.ops)

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the tags, float32 [B, L, C]."""
        x_BLD, _ = self.encode_rows(token_ids, attention_mask, token_type_ids, train)
        return self.classifier(x_BLD, train)
