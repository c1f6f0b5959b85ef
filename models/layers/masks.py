"""Who may read whom, kept as its reasons: a kernel then skips what none may read, and never holds a mask of all pairs.

B batch   L length of the readers   M length of what is read
"""

from functools import reduce

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from models.layers.cache import Step


class Mask(flax.struct.PyTreeNode):
    """All reasons hold at once; without any, everyone reads everything.

    valid_BM:  bool, True on tokens, which stand on the left, and False on the padding behind them
    segments:  int32 (of the readers [B, L], of what is read [B, M]); a segment is read by its own members alone
    causal:    position l reads positions up to and including l
    window:    with `causal`, l reads the nearest `window` of those, itself included: l - window < m <= l
               (Child et al. 2019, "locally banded"). Without it, l reads `window // 2` positions on
               either side and itself, |l - m| <= window // 2: 128 is 64 before, itself and 64 after, as
               `local_attention` of ModernBERT (Warner et al. 2024) and `attention_window` of Longformer
               (Beltagy et al. 2020)
    step:      the readers are one word a row, and stand where it says; in a causal mask, while decoding
    Raises ValueError for a window below 1, and for one without `causal` beside a step.
    """

    valid_BM: jax.Array | None = None
    segments: tuple[jax.Array, jax.Array] | None = None
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    window: int | None = flax.struct.field(pytree_node=False, default=None)
    step: Step | None = None

    def __post_init__(self):
        if self.window is None:
            return
        if self.window < 1:
            raise ValueError(f"a window of {self.window} positions: it must be at least 1")
        if self.step is not None and not self.causal:
            raise ValueError(
                f"a window of {self.window} positions on both sides in a step of decoding: what "
                "follows is not written yet. Only a causal mask can decode (causal=True)"
            )

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How many positions before itself and after itself a position reads; None for no limit."""
        if self.causal:
            return None if self.window is None else self.window - 1, 0
        return (None, None) if self.window is None else (self.window // 2, self.window // 2)

    def dense(self, L, M):
        """The mask itself, bool, broadcastable to [B, H, L, M], or None where nothing is masked."""
        if self.step is not None and self.step.slots != M:
            raise ValueError(
                f"a step of decoding reads {self.step.slots} slots of a cache, not {M} keys; "
                "models.generation.cached_attention.apply_cached calls a model with its cache"
            )
        parts = []
        if self.valid_BM is not None:
            parts.append(self.valid_BM[:, None, None, :])
        if self.segments is not None:
            readers_BL, read_BM = self.segments
            parts.append(readers_BL[:, None, :, None] == read_BM[:, None, None, :])
        if self.causal:
            back = (np.arange(L) if self.step is None else self.step.position_B)[
                :, None
            ] - np.arange(M)
            read = jnp.asarray((back >= 0) & (back < (self.window or M)))
            parts.append(read[None, None] if self.step is None else read[:, None, None])
        elif self.window is not None:
            distance_LM = np.abs(np.arange(L)[:, None] - np.arange(M))
            parts.append(jnp.asarray(distance_LM <= self.window // 2)[None, None])
        return reduce(jnp.logical_and, parts) if parts else None


def padding_mask(valid_BM, segment_ids_BM=None):
    """Whoever reads, reads only what is there, and of several texts in a row only its own."""
    return Mask(valid_BM, None if segment_ids_BM is None else (segment_ids_BM, segment_ids_BM))


def causal_mask(valid_BM=None, segment_ids_BL=None, window=None, step=None):
    """A decoder's: each position reads itself and what stands before it, in its own segment where there are several."""
    return Mask(
        valid_BM,
        None if segment_ids_BL is None else (segment_ids_BL, segment_ids_BL),
        causal=True,
        window=window,
        step=step,
    )
