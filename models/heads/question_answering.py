"""A pretrained encoder and one new layer, which tells of each token how well an answer begins and ends there (Devlin et al. 2018, section 4.2).

A row is `[CLS] question [SEP] context [SEP]`; [CLS] stands for "no answer here" (section 4.3).

B batch   L length   D width
"""

from functools import partial

from models.heads.base import Headed
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead


class SpanReader(Headed):
    """token_ids, token_type_ids: int32 [B, L]; attention_mask: bool [B, L], False on padding.

    Returns float32 [B, L, 2]: logits of the first token and of the last.
    """

    def setup(self):
        super().setup()
        self.span = ClassHead(2, partial(Dropout, self.config.dropout, ops=self.ops), self.ops)

    def states(self, token_ids, attention_mask, token_type_ids=None, train=False):
        x_BLD, _ = self.read(token_ids, attention_mask, token_type_ids, train)
        return self.span(x_BLD, train)
