"""Classification or regression of a text or a pair of texts (Devlin et al. 2018, section 4.1).

The head reads the [CLS], which is the first token, or XLNet's last: through the encoder's pooler,
or, where it has none, through a new hidden layer, as in Hugging Face transformers. That of a causal
decoder reads the last token (Radford et al. 2018, section 3.2), without a bias.

B batch   L length   D width   C classes
"""

from functools import partial
from typing import Any

import jax

from models.config.classifier import ClassifierConfig
from models.config.heads import HeadedConfig
from models.heads.base import HeadedModel
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead, HiddenClassHead
from models.layers.mlp import ACTIVATIONS
from models.layers.ops import Ops


def make_row_head(config: HeadedConfig, num_outputs: int, ops: Ops) -> ClassHead | HiddenClassHead:
    """Return the head that scores a row.

    Args:
      config: the fine-tuned model.
      num_outputs: the number of scores.
      ops: the operations.

    Returns:
      A head with a hidden layer for an encoder without a pooler, otherwise one without.
    """
    dropout, activation = partial(Dropout, config.dropout, ops=ops), config.encoder.head_activation
    if activation is None:
        return ClassHead(num_outputs, dropout, ops, use_bias=not config.encoder.is_causal)
    return HiddenClassHead(num_outputs, dropout, ACTIVATIONS[activation], ops)


def score_rows(
    head: Any,
    config: HeadedConfig,
    x_BLD: jax.Array,
    row_BD: jax.Array,
    attention_mask: jax.Array,
    train: bool,
) -> jax.Array:
    """Return the scores [B, C] of a head that `make_row_head` has made.

    x_BLD: the states of the tokens. row_BD: the state of each row.
    """
    if config.encoder.pools_late:
        return head(x_BLD, train, attention_mask)
    return head(row_BD, train)


class Classifier(HeadedModel):
    """One score for each class, or one score in all for a regression."""

    config: ClassifierConfig

    def setup(self) -> None:
        """Make encoder and head."""
        super().setup()
        self.classifier = make_row_head(self.config, self.config.num_outputs, self.ops)

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the classes, or the score, float32 [B, C]."""
        read = self.encode_rows(token_ids, attention_mask, token_type_ids, train)
        return score_rows(self.classifier, self.config, *read, attention_mask, train)
