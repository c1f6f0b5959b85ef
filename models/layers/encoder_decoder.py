"""The common parts of encoder-decoders: what reads a text and writes another, label by label.

A paper's file has the embeddings, the layers and the logits.

B batch   L target length   M input length   D width   V vocabulary
"""

from typing import Any

import jax
import jax.numpy as jnp

from models.layers.cache import DecodingStep
from models.layers.masks import find_segment_starts
from models.layers.model import Model


def shift_right(
    labels: jax.Array, segment_ids: jax.Array | None = None, start: int = 0
) -> jax.Array:
    """Return the decoder's input [B, L]: `start`, then all but the last label, in each segment."""
    shifted_BL = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
    if segment_ids is None:
        return shifted_BL
    return jnp.where(find_segment_starts(segment_ids), start, shifted_BL)


class EncoderDecoder(Model):
    """An encoder of one text and a decoder that writes another; a row has one pair of texts.

    A subclass makes its parts in `setup`, and implements `encode`, `decode` and `compute_logits`.
    """

    encodes = decodes = True

    def __call__(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        labels: jax.Array,
        train: bool = False,
    ) -> jax.Array:
        """Return the logits of the labels, float32 [B, L, V].

        Args:
          encoder_token_ids: int32 [B, M].
          encoder_attention_mask: bool [B, M], False on padding.
          labels: int32 [B, L]; the decoder reads them shifted right by one.
          train: whether dropout is applied.
        """
        return self.compute_logits(
            self.compute_states(encoder_token_ids, encoder_attention_mask, labels, train)
        )

    def compute_states(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        labels: jax.Array,
        train: bool = False,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D], from which `compute_logits` predicts labels."""
        memory = self.encode(encoder_token_ids, encoder_attention_mask, train)
        decoder_token_ids = shift_right(labels, start=self.config.start)
        return self.decode(memory, encoder_attention_mask, decoder_token_ids, train)

    def encode(
        self, encoder_token_ids: jax.Array, encoder_attention_mask: jax.Array, train: bool = False
    ) -> Any:
        """Return what the decoder reads of the input: the encoder's states [B, M, D]."""
        raise NotImplementedError

    def decode(
        self,
        memory: Any,
        /,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D]; that at position l depends on tokens up to l.

        Args:
          memory: the result of `encode`.
          encoder_attention_mask: bool [B, M], False on padding.
          decoder_token_ids: int32 [B, L], or [B, 1] with `step`.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.
        """
        raise NotImplementedError

    def compute_logits(self, y_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        raise NotImplementedError


class PackedEncoderDecoder(EncoderDecoder):
    """An encoder-decoder whose rows may have several pairs of texts; each reads itself only.

    Its `encode` also takes `encoder_segment_ids`, and its `decode` takes `segment_ids`, the segment
    ids of the decoder's tokens [B, L] and of the input [B, M].
    """

    def __call__(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        labels: jax.Array,
        train: bool = False,
        encoder_segment_ids: jax.Array | None = None,
        decoder_segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the logits of the labels, float32 [B, L, V].

        Args: as in `EncoderDecoder`, and
          encoder_segment_ids: int32 [B, M], the packed pair that a token belongs to. None: one
            pair a row.
          decoder_segment_ids: int32 [B, L], the same of the labels.
        """
        texts = encoder_token_ids, encoder_attention_mask, labels
        return self.compute_logits(
            self.compute_states(*texts, train, encoder_segment_ids, decoder_segment_ids)
        )

    def compute_states(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        labels: jax.Array,
        train: bool = False,
        encoder_segment_ids: jax.Array | None = None,
        decoder_segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D], from which `compute_logits` predicts labels."""
        memory = self.encode(encoder_token_ids, encoder_attention_mask, train, encoder_segment_ids)
        segment_ids = None
        if decoder_segment_ids is not None:
            assert encoder_segment_ids is not None  # packed pairs have both
            segment_ids = (decoder_segment_ids, encoder_segment_ids)
        decoder_token_ids = shift_right(labels, decoder_segment_ids, self.config.start)
        return self.decode(
            memory, encoder_attention_mask, decoder_token_ids, train, segment_ids=segment_ids
        )

    def encode(
        self,
        encoder_token_ids: jax.Array,
        encoder_attention_mask: jax.Array,
        train: bool = False,
        encoder_segment_ids: jax.Array | None = None,
    ) -> Any:
        """Return what the decoder reads of the input."""
        raise NotImplementedError

    def decode(
        self,
        memory: Any,
        /,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
        segment_ids: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D]. Arguments: as above."""
        raise NotImplementedError
