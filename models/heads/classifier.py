"""A pretrained encoder and one new layer, which tells the class of a text or of a pair of texts, or its score (Devlin et al. 2018, section 4.1).

The row is read where every encoder gathers it: at its first position, through its pooler, or through a new hidden
layer where it has none, as Hugging Face transformers have it.

B batch   L length   C classes
"""

from functools import partial

import flax.linen as nn

from models.config.heads import ClassifierConfig
from models.heads.base import Headed
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead, HiddenClassHead
from models.layers.mlp import gelu

ACTIVATIONS = {"gelu": gelu, "relu": nn.relu}


def make_row_head(config, outputs, ops):
    """Return the head that scores a row of a fine-tuned model: of an encoder without a pooler it has a hidden layer."""
    dropout, activation = partial(Dropout, config.dropout, ops=ops), config.encoder.head_activation
    if activation is None:
        return ClassHead(outputs, dropout, ops)
    return HiddenClassHead(outputs, dropout, ACTIVATIONS[activation], ops)


class Classifier(Headed):
    """token_ids, token_type_ids: int32 [B, L]; attention_mask: bool [B, L], False on padding.

    Returns float32 [B, C], logits of the classes, or one score.
    """

    config: ClassifierConfig

    def setup(self):
        super().setup()
        self.classifier = make_row_head(self.config, self.config.outputs, self.ops)

    def states(self, token_ids, attention_mask, token_type_ids=None, train=False):
        _, pooled_BD = self.read(token_ids, attention_mask, token_type_ids, train)
        return self.classifier(pooled_BD, train)
