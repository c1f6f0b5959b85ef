"""LSTM language models (Zaremba et al. 2014; Karpathy et al. 2015): a stack of LSTMs reads tokens.

The state after a row is the state before the next one, without a gradient (truncated
backpropagation through time). It is all that the model keeps of a text, so that a token costs the
same at any position.

B batch   L length   D width   V vocabulary
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.lstm_lm import LstmLmConfig
from models.layers.cache import CARRY, DecodingStep
from models.layers.dropout import Dropout
from models.layers.heads import TiedHead
from models.layers.linear import Dense, Embed
from models.layers.model import Model
from models.layers.recurrent.layer import RecurrentLayer
from models.layers.recurrent.lstm import Lstm
from models.layers.stack import Stack

# The papers draw from U(-0.05, 0.05) (Zaremba et al., medium) and U(-0.08, 0.08) (Karpathy et al.).
NORMAL = nn.initializers.normal(0.05)


class LstmLanguageModel(Model):
    """The language model.

    The collection `CARRY` has the state after the last position that each row has read.
    Without it a row begins with zeros.
    """

    carried = (CARRY,)
    config: LstmLmConfig

    def setup(self) -> None:
        """Make embeddings, layers and the output."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.decoder = Stack(
            partial(
                RecurrentLayer,
                lstm=partial(Lstm, c.width, forget_bias=c.forget_bias, ops=self.ops),
                dropout=partial(Dropout, c.dropout, ops=self.ops),
            ),
            c.depth,
            scan=c.scan,
            remat=c.remat,
            ops=self.ops,
        )
        self.drop = Dropout(c.dropout, ops=self.ops)
        lm_head: Any = (
            TiedHead(self.ops)
            if c.tied
            else Dense(c.vocab, kernel_init=NORMAL, out_dtype=jnp.float32, ops=self.ops)
        )
        self.lm_head = lm_head

    def __call__(
        self,
        token_ids: jax.Array,
        is_continued: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the token after each position, float32 [B, L, V].

        Arguments: see `compute_states`.
        """
        return self.compute_logits(self.compute_states(token_ids, is_continued, segment_ids, train))

    def compute_states(
        self,
        token_ids: jax.Array,
        is_continued: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the states [B, L, D] for `compute_logits`; that at l depends on tokens up to l.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          is_continued: bool [B], False where a row does not continue the state's row, and begins
            with zeros; None: all rows continue.
          segment_ids: int32 [B, L], the document of each token, from 1 and ascending; all but the
            first one begin with zeros. 0 is padding after them, which leaves the state as it is.
            None: a row is of one document.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow the tokens of the state.
        """
        mask_BL = None
        if segment_ids is not None:
            mask_BL = segment_ids > 0
            segment_ids = jax.lax.cummax(segment_ids, axis=1)  # padding begins no document
        x_BLD = self.decoder(
            self.token_embedding(token_ids),
            train,
            is_continued=is_continued,
            attention_mask=mask_BL,
            segment_ids=segment_ids,
            step=step,
        )
        return self.drop(x_BLD, deterministic=not train)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        if self.config.tied:
            return self.lm_head(x_BLD, self.token_embedding)
        return self.lm_head(x_BLD)
