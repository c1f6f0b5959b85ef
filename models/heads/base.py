"""The base of fine-tuned models: a pretrained encoder, to which a subclass adds a new head.

B batch   L length   D width
"""

import jax
import jax.numpy as jnp

from models import build
from models.config.heads import HeadedConfig
from models.layers.heads import gather_last
from models.layers.model import Model


class HeadedModel(Model):
    """A pretrained encoder with a head.

    A subclass makes its head in `setup` and implements `compute_states`, which returns the head's
    output. The model has no logits of the vocabulary.
    """

    config: HeadedConfig

    def setup(self) -> None:
        """Make the encoder."""
        self.encoder = build(self.config.encoder, ops=self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the head's output.

        Args:
          token_ids: int32 [B, L].
          attention_mask: bool [B, L], False on padding.
          token_type_ids: int32 [B, L]; all 0 by default.
          train: whether dropout is applied.
        """
        return self.compute_states(token_ids, attention_mask, token_type_ids, train)

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the head's output. Arguments: as in `__call__`."""
        raise NotImplementedError

    def encode_rows(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None,
        train: bool,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D], and the state of each row [B, D].

        The row's state is the pooled [CLS], or the last token's in a causal decoder. In a model of
        one token type the texts of a pair differ by their separators alone.
        """
        if self.config.encoder.is_causal:  # No token attends to the padding after it.
            x_BLD = self.encoder.compute_states(token_ids, train=train)
            row_BD = gather_last(x_BLD, attention_mask)
        else:
            if token_type_ids is not None:
                token_type_ids = jnp.minimum(token_type_ids, self.config.encoder.segments - 1)
            x_BLD, row_BD = self.encoder.encode(
                token_ids, attention_mask, token_type_ids, train=train
            )
        if self.config.encoder.transforms_states:
            return self.encoder.transform(x_BLD), self.encoder.transform(row_BD)
        return x_BLD, row_BD
