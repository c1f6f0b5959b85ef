"""Transformer-XL (Dai et al. 2019): segments read the states of the segments before them.

Each layer keeps the last activations that it has read, without a gradient, and attends to them and
to the segment, by relative position (sections 3.2 and 3.3). The output is an adaptive softmax.

B batch   L segment length   M memory length   N keys: M + L, or the slots of
the cache   D width   V vocabulary   H heads   K head width
"""

import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.transformer_xl import TransformerXLConfig
from models.layers.adaptive_softmax import AdaptiveEmbedding, ClusterLogits
from models.layers.cache import DecodingStep
from models.layers.dropout import Dropout
from models.layers.masks import Mask, make_causal_mask
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.ops import Ops
from models.layers.relative.relative_attention import (
    RelativeAttention,
    RelativePositions,
    embed_distances,
)
from models.layers.relative.segment_recurrence import SegmentRecurrence
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

NORMAL = nn.initializers.normal(0.02)  # of the authors' code; the paper gives none


def make_layer(config: TransformerXLConfig, ops: Ops) -> partial[PostNormLayer]:
    """Return the constructor of a layer."""
    c = config
    drop = partial(Dropout, c.dropout, ops=ops)
    return partial(
        PostNormLayer,
        attention=partial(
            RelativeAttention,
            c.num_heads,
            c.head_width,
            use_bias=False,
            kernel_init=NORMAL,
            bias_init=NORMAL,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            memory=c.memory,
            ops=ops,
        ),
        mlp=partial(Mlp, c.mlp, activation=nn.relu, kernel_init=NORMAL, dropout=drop, ops=ops),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=drop,
    )


class TransformerXL(SegmentRecurrence):
    """The language model.

    The collection `SEGMENT_MEMORY` has what the next segment of each row reads. Without it a
    segment is read alone.
    """

    logits_method = "compute_cluster_logits"
    config: TransformerXLConfig

    def setup(self) -> None:
        """Make embeddings, layers, and the biases that layers share."""
        c = self.config
        cutoffs, divisor = (c.clusters.cutoffs, c.clusters.divisor) if c.clusters else ((), 1)
        self.embeddings = AdaptiveEmbedding(c.vocab, c.width, cutoffs, divisor, NORMAL, self.ops)
        self.decoder = Stack(
            make_layer(c, self.ops), c.depth, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.drop = Dropout(c.dropout, ops=self.ops)
        if not c.untie_r:
            shape_HK = c.num_heads, c.head_width
            self.content_bias = self.param("content_bias", NORMAL, shape_HK)
            self.position_bias = self.param("position_bias", NORMAL, shape_HK)

    def __call__(
        self,
        token_ids: jax.Array,
        is_continued: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Return the log-probabilities of the token after each position, float32 [B, L, V].

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
          is_continued: bool [B], False where a row does not continue the memory's row, which it
            then does not read; None: all rows continue.
          segment_ids: int32 [B, L], the document of each token, from 1; a token attends to its own.
            The memory is of the first one; the next row continues the last one. None: a row
            attends to all of its tokens and of the memory.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.

        Raises:
          ValueError: the memory has another number of rows.
        """
        c, (B, L) = self.config, token_ids.shape
        segment_ids_BL = jnp.ones((B, L), jnp.int32) if segment_ids is None else segment_ids
        readable_BM = self.update_readable(segment_ids_BL, is_continued)
        window = c.memory if c.same_length else None
        if readable_BM is None:
            mask = make_causal_mask(segment_ids_BL=segment_ids, window=window, step=step)
            num_keys = L if step is None else step.num_slots
        else:
            # 0 is the id of no document.
            memory_BM = jnp.where(readable_BM, segment_ids_BL[:, :1], 0)
            key_ids_BN = jnp.concatenate([memory_BM, segment_ids_BL], axis=1)
            mask = Mask(
                segment_ids=(segment_ids_BL, key_ids_BN),
                causal=True,
                window=window,
                offset=c.memory,
            )
            num_keys = c.memory + L
        deterministic = not train
        x_BLD = self.embeddings(token_ids) * math.sqrt(c.width)
        distances_ND = jnp.asarray(embed_distances(num_keys, c.width, c.clamp_len), x_BLD.dtype)
        relative = RelativePositions(
            self.drop(distances_ND, deterministic=deterministic, by_row=False)
        )
        if not c.untie_r:
            relative = relative.replace(
                content_bias_HK=self.content_bias, position_bias_HK=self.position_bias
            )
        x_BLD = self.drop(x_BLD, deterministic=deterministic)
        x_BLD = self.decoder(x_BLD, train, mask=mask, relative=relative)
        return self.drop(x_BLD, deterministic=deterministic)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the log-probabilities of all ids, float32 [B, L, V]."""
        return self.embeddings.attend(x_BLD)

    def compute_cluster_logits(self, x_BLD: jax.Array) -> ClusterLogits:
        """Return the logits of each softmax, from which a loss needs few of the probabilities."""
        return self.embeddings.score_clusters(x_BLD)
