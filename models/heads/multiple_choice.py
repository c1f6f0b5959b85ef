"""Multiple choice: a score for each choice of a question (Devlin et al. 2018, section 4.4).

Each choice is a row of its own, read as the row of a text pair is (models/heads/classifier.py), so
that there may be any number of them.

B questions   C choices of each   L length   N = B C rows   D width
"""

import jax

from models.heads.base import HeadedModel
from models.heads.classifier import make_row_head, score_rows


class Chooser(HeadedModel):
    """A score for each choice; all inputs are [B, C, L]."""

    def setup(self) -> None:
        """Make encoder and head."""
        super().setup()
        self.classifier = make_row_head(self.config, 1, self.ops)

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the choices, float32 [B, C]."""
        B, C, L = token_ids.shape
        token_type_ids_NL = None if token_type_ids is None else token_type_ids.reshape(B * C, L)
        token_ids_NL, mask_NL = token_ids.reshape(B * C, L), attention_mask.reshape(B * C, L)
        read = self.encode_rows(token_ids_NL, mask_NL, token_type_ids_NL, train)
        return score_rows(self.classifier, self.config, *read, mask_NL, train).reshape(B, C)
