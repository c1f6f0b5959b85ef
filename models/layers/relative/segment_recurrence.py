"""Segment-level recurrence (Dai et al. 2019, section 3.2): which of the memory a row may read.

B batch   L segment length   M memory length   N = M + L
"""

import jax
import jax.numpy as jnp

from models.layers.cache import SEGMENT_MEMORY
from models.layers.model import Model


class SegmentRecurrence(Model):
    """A model whose layers keep states of the segments before (`RelativeAttention`).

    The collection `SEGMENT_MEMORY` has each layer's states and, at the top, `is_readable` [B, M],
    False where no text is yet, or another document's.

    config: has `memory`, the number M of positions that are kept, or None.
    """

    carried = (SEGMENT_MEMORY,)

    def update_readable(
        self, segment_ids_BL: jax.Array, is_continued: jax.Array | None
    ) -> jax.Array | None:
        """Return which positions of the memory the rows may read, bool [B, M]; None without one.

        Also writes the memory of the next rows, which continue the last document.

        Args:
          segment_ids_BL: int32, the document of each token, from 1.
          is_continued: bool [B], False where a row does not continue the one before; None: all do.

        Raises:
          ValueError: the memory has another number of rows or positions.
        """
        B, L = segment_ids_BL.shape
        M, readable_BM = self.config.memory, None
        if M is None:
            return None
        if self.has_variable(SEGMENT_MEMORY, "is_readable"):
            readable_BM = self.get_variable(SEGMENT_MEMORY, "is_readable")
            if readable_BM.shape != (B, M):
                raise ValueError(
                    f"a segment memory of {len(readable_BM)} rows and {readable_BM.shape[1]} "
                    f"positions for {B} rows and model.memory={M}: begin with zeros, of as many "
                    "rows as the batch has, where the batch size changes"
                )
            if is_continued is not None:
                readable_BM = readable_BM & is_continued[:, None]
        if self.is_mutable_collection(SEGMENT_MEMORY):
            last_BL = segment_ids_BL == segment_ids_BL[:, -1:]
            before_BM = jnp.zeros((B, M), bool) if readable_BM is None else readable_BM
            # The memory is of the row's first document.
            next_BN = jnp.concatenate([before_BM & last_BL[:, :1], last_BL], axis=1)[:, -M:]
            if self.is_initializing():
                next_BN = jnp.zeros_like(next_BN)
            self.put_variable(SEGMENT_MEMORY, "is_readable", next_BN)
        return readable_BM
