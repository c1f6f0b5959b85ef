"""A pretrained encoder and one new layer, which tells the tag of each word at its first piece (Devlin et al. 2018, section 5.3).

It reads the last hidden states, through dropout and no other layer, as Hugging Face transformers have it for every encoder here.

B batch   L length   D width   C tags
"""

from functools import partial

from models.config.heads import TaggerConfig
from models.heads.base import Headed
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead


class Tagger(Headed):
    """token_ids, token_type_ids: int32 [B, L]; attention_mask: bool [B, L], False on padding.

    Returns float32 [B, L, C], logits of the tags at each token.
    """

    config: TaggerConfig

    def setup(self):
        super().setup()
        dropout = partial(Dropout, self.config.dropout, ops=self.ops)
        self.classifier = ClassHead(self.config.outputs, dropout, self.ops)

    def states(self, token_ids, attention_mask, token_type_ids=None, train=False):
        x_BLD, _ = self.read(token_ids, attention_mask, token_type_ids, train)
        return self.classifier(x_BLD, train)
