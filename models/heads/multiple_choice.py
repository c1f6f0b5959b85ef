"""A pretrained encoder and one new layer, which scores each choice of a question in a row of its own (Devlin et al. 2018, section 4.4).

A choice is read as the row of a text pair is (models/heads/classifier.py), so that there may be any number of them.

B questions   C choices of each   L length
"""

from models.heads.base import Headed
from models.heads.classifier import make_row_head


class Chooser(Headed):
    """tokens_BCL, segments_BCL: int32; valid_BCL: bool, False on padding. Returns float32 [B, C], a score for each choice."""

    def setup(self):
        super().setup()
        self.classifier = make_row_head(self.config, 1)

    def states(self, tokens_BCL, valid_BCL, segments_BCL=None, train=False):
        B, C, L = tokens_BCL.shape
        segments_NL = None if segments_BCL is None else segments_BCL.reshape(B * C, L)
        _, pooled_ND = self.read(
            tokens_BCL.reshape(B * C, L), valid_BCL.reshape(B * C, L), segments_NL, train
        )
        return self.classifier(pooled_ND, train).reshape(B, C)
