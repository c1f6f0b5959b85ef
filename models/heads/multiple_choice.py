"""A pretrained encoder and one new layer, which scores each choice of a question in a row of its own (Devlin et al. 2018, section 4.4).

A choice is read as the row of a text pair is (models/heads/classifier.py), so that there may be any number of them.

B questions   C choices of each   L length
"""

from models.heads.base import Headed
from models.heads.classifier import make_row_head


class Chooser(Headed):
    """token_ids, token_type_ids: int32 [B, C, L]; attention_mask: bool [B, C, L], False on padding.

    Returns float32 [B, C], a score for each choice.
    """

    def setup(self):
        super().setup()
        self.classifier = make_row_head(self.config, 1, self.ops)

    def states(self, token_ids, attention_mask, token_type_ids=None, train=False):
        B, C, L = token_ids.shape
        token_type_ids_NL = None if token_type_ids is None else token_type_ids.reshape(B * C, L)
        _, pooled_ND = self.read(
            token_ids.reshape(B * C, L), attention_mask.reshape(B * C, L), token_type_ids_NL, train
        )
        return self.classifier(pooled_ND, train).reshape(B, C)
