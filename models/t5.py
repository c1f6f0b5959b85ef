"""T5 (Raffel et al. 2019): an encoder-decoder that casts every language task as text to text.

Positions are a learned bias on the attention scores by distance, shared by the layers of a stack;
norms only rescale (section 2.1). The scores are not divided by sqrt(K): the initialisation of the
query kernel includes that factor.

B batch   L target length   M input length   D width   H heads   R distances   V vocabulary
"""

import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from models.config.t5 import T5Config
from models.layers.attention import Attention
from models.layers.cache import DecodingStep
from models.layers.dropout import Dropout
from models.layers.encoder_decoder import EncoderDecoder
from models.layers.linear import FAN_IN, Dense, Embed
from models.layers.masks import make_causal_mask, make_padding_mask
from models.layers.mlp import GatedMlp, Mlp, gelu_tanh
from models.layers.norms import RMSNorm
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def bucket_distances(
    distance: np.ndarray, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> np.ndarray:
    """Return the bucket of each distance (key position - query position) (section 2.1).

    Near distances have a bucket each. Farther ones share buckets whose size grows with the
    logarithm, and all from `max_distance` on share the last.

    Args:
      distance: an int array of any shape.
      bidirectional: whether half of the buckets are for keys after the query; otherwise there are
        none for them.
      num_buckets: the number of buckets.
      max_distance: the distance from which on all share a bucket.

    Returns:
      An int array of the same shape.

    Raises:
      ValueError: there are too few buckets, or `max_distance` is not above the near distances.
    """
    if bidirectional:
        num_buckets //= 2
        offset, distance = num_buckets * (distance > 0), np.abs(distance)
    else:
        offset, distance = 0, np.maximum(-distance, 0)
    num_near = num_buckets // 2
    if num_near < 1 or max_distance <= num_near:
        raise ValueError(
            f"max_distance {max_distance} is not beyond the {num_near} near distances of "
            f"{num_buckets} buckets a direction: there must be at least 2 buckets, "
            "and a larger max_distance"
        )
    log_ratio = np.log(np.maximum(distance, 1).astype(np.float32) / num_near) / math.log(
        max_distance / num_near
    )
    far = num_near + (log_ratio * (num_buckets - num_near)).astype(np.int32)
    return offset + np.where(distance < num_near, distance, np.minimum(far, num_buckets - 1))


class RelativeBias(nn.Module):
    """The relative position bias of the attention scores (section 2.1).

    bidirectional: whether keys after the query have buckets of their own.
    """

    config: T5Config
    bidirectional: bool

    @nn.compact
    def __call__(self, L: int, M: int, step: DecodingStep | None = None) -> jax.Array:
        """Return the bias of every head, query and key, float32 [1, H, L, M].

        With `step`, a decoding step, it covers the step's queries and all slots, [B, H, 1, M].
        """
        c = self.config
        L, M = (L, M) if step is None else (step.num_slots, step.num_slots)
        table = self.param("table", nn.initializers.normal(c.width**-0.5), (c.buckets, c.num_heads))
        distance_R = np.arange(1 - L, M)
        bucket_R = bucket_distances(
            distance_R,
            bidirectional=self.bidirectional,
            num_buckets=c.buckets,
            max_distance=c.max_distance,
        )
        # float32, so that the gradients of all layers are summed in float32.
        bias_HR = table[bucket_R].T.astype(jnp.float32)
        if step is not None:
            distance_BM = np.arange(M) - step.position_B[:, None]
            return bias_HR.T[distance_BM + L - 1].swapaxes(1, 2)[:, :, None]
        return expand_to_pairs(bias_HR, L)[None]


def expand_to_pairs(bias_HR: jax.Array, L: int) -> jax.Array:
    """Return [H, L, M] whose entry (l, m) is the bias of the distance m - l.

    bias_HR has the distances 1 - L ... M - 1, R = L + M - 1. Copies that are one entry too long
    shift by one from row to row. This needs no gather, whose gradient would be a scatter.
    """
    H, R = bias_HR.shape
    flat = jnp.tile(jnp.pad(bias_HR, ((0, 0), (0, 1))), L)
    return flat[:, : L * R].reshape(H, L, R)[:, :, L - 1 :]


class T5(EncoderDecoder):
    """T5's encoder-decoder (section 2.1).

    As in the paper's code, dropout has one draw for all positions of a row.
    """

    config: T5Config

    def setup(self) -> None:
        """Make embeddings, biases, encoder and decoder."""
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, broadcast_dims=(-2,), ops=ops)
        norm = partial(RMSNorm, c.epsilon, ops=ops)
        attention = partial(
            Attention,
            c.num_heads,
            c.head_width,
            use_bias=False,
            kernel_init=FAN_IN,
            query_init=nn.initializers.variance_scaling(1 / c.head_width, "fan_in", "normal"),
            dropout=dropout,
            scale=1.0,
            ops=ops,
        )
        mlp = (
            partial(GatedMlp, activation=gelu_tanh) if c.gated else partial(Mlp, activation=nn.relu)
        )
        mlp = partial(mlp, c.mlp, use_bias=False, kernel_init=FAN_IN, dropout=dropout, ops=ops)
        layer = partial(PreNormLayer, attention=attention, mlp=mlp, norm=norm, dropout=dropout)
        stack = partial(Stack, scan=c.scan, remat=c.remat, ops=ops)

        self.token_embedding = Embed(c.vocab, c.width, nn.initializers.normal(1.0), ops)
        self.encoder_bias = RelativeBias(c, bidirectional=True)
        self.encoder = stack(layer, c.depth)
        self.encoder_norm = norm()
        self.decoder_bias = RelativeBias(c, bidirectional=False)
        self.decoder = stack(partial(layer, cross=attention), c.decoder_depth)
        self.decoder_norm = norm()
        self.drop = dropout()
        if not c.tied:
            self.lm_head = Dense(
                c.vocab, use_bias=False, kernel_init=FAN_IN, out_dtype=jnp.float32, ops=ops
            )

    def encode(
        self, encoder_token_ids: jax.Array, encoder_attention_mask: jax.Array, train: bool = False
    ) -> jax.Array:
        """Return the encoder's states [B, M, D]."""
        drop = partial(self.drop, deterministic=not train)
        M = encoder_token_ids.shape[1]
        x_BMD = drop(self.token_embedding(encoder_token_ids))
        x_BMD = self.encoder(
            x_BMD,
            train,
            mask=make_padding_mask(encoder_attention_mask),
            bias=self.encoder_bias(M, M),
        )
        return drop(self.encoder_norm(x_BMD))

    def decode(
        self,
        memory_BMD: jax.Array,
        encoder_attention_mask: jax.Array,
        decoder_token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the decoder's states [B, L, D]."""
        drop = partial(self.drop, deterministic=not train)
        L = decoder_token_ids.shape[1]
        memory = {
            "memory_BMD": memory_BMD,
            "memory_mask": make_padding_mask(encoder_attention_mask),
        }
        y_BLD = drop(self.token_embedding(decoder_token_ids))
        y_BLD = self.decoder(
            y_BLD,
            train,
            **memory,
            mask=make_causal_mask(step=step),
            bias=self.decoder_bias(L, L, step),
        )
        return drop(self.decoder_norm(y_BLD))

    def compute_logits(self, y_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        if self.config.tied:
            # The embeddings have variance 1, so the logits are scaled, as in the paper's code.
            return self.token_embedding.attend(y_BLD) * self.config.width**-0.5
        return self.lm_head(y_BLD)
