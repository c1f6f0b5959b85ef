"""The decoder twin of ModernBERT (Weller et al. 2025, "Seq vs Seq"): the same parameters, causal.

Ettin pretrains both alike, so that a run of one objective can go on with the other (section 3.2).
A query of a local layer attends to 64 keys, its own included, as in transformers; the authors'
training code has 65.

B batch   L length   D width   V vocabulary
"""

import jax

from models.config.modernbert_decoder import ModernBertDecoderConfig
from models.layers.cache import DecodingStep
from models.layers.masks import make_causal_mask
from models.layers.rotary import check_length, find_positions
from models.modernbert import ModernBertBody


class ModernBertDecoder(ModernBertBody):
    """Predicts the next token."""

    config: ModernBertDecoderConfig

    def __call__(
        self, token_ids: jax.Array, segment_ids: jax.Array | None = None, train: bool = False
    ) -> jax.Array:
        """Return the logits of the token after each position, float32 [B, L, V].

        Args:
          token_ids: int32 [B, L]. Padding is allowed on the right: no token attends to it.
          segment_ids: int32 [B, L], from 1, the packed text that a token belongs to. A token
            attends to its own text only. None: one text a row.
          train: whether dropout is applied.
        """
        return self.compute_logits(self.compute_states(token_ids, train, segment_ids=segment_ids))

    def compute_states(
        self,
        token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the states [B, L, D] for `compute_logits`; that at l depends on tokens up to l.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.
          segment_ids: as in `__call__`.

        Raises:
          ValueError: L, or what a step's row may hold, is above the model's length.
        """
        L = token_ids.shape[1]
        check_length(L if step is None else step.num_slots, self.config.length)
        positions_BL = find_positions(L, segment_ids) if step is None else step.position_B[:, None]
        mask = make_causal_mask(segment_ids_BL=segment_ids, step=step)
        return self.run_layers(token_ids, train, mask, positions_BL)
