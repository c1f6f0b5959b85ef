"""T5 (Raffel et al. 2019): one encoder-decoder that turns every language task into text in, text out.

Positions are only a bias on the attention scores, learned by distance and shared by the layers of a stack; norms only
rescale; scores are not divided by sqrt(K), because the initialisation already is.

B batch   L target length   M input length   D width   H heads   R distances   V vocabulary
"""

import math
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from models.config.t5 import T5Config
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.linear import FAN_IN, Dense, Embed
from models.layers.masks import causal_mask, padding_mask
from models.layers.mlp import GatedMlp, Mlp, gelu_tanh
from models.layers.norms import RMSNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def bucket(distance, *, bidirectional, buckets=32, max_distance=128):
    """The bucket of each distance (key position - query position), an int array of any shape (section 2.1).

    Near distances have a bucket each; farther ones share buckets that grow with the logarithm, and all from
    `max_distance` on share the last. Half of the buckets are for keys that lie ahead, or none without `bidirectional`.
    Raises ValueError where there are too few buckets, or `max_distance` is not beyond the near ones.
    """
    if bidirectional:
        buckets //= 2
        ahead, distance = buckets * (distance > 0), np.abs(distance)
    else:
        ahead, distance = 0, np.maximum(-distance, 0)
    near = buckets // 2
    if near < 1 or max_distance <= near:
        raise ValueError(
            f"max_distance {max_distance} is not beyond the {near} near distances of {buckets} buckets a direction: "
            "there must be at least 2 buckets, and a larger max_distance"
        )
    octaves = np.log(np.maximum(distance, 1).astype(np.float32) / near) / math.log(
        max_distance / near
    )
    far = near + (octaves * (buckets - near)).astype(np.int32)
    return ahead + np.where(distance < near, distance, np.minimum(far, buckets - 1))


class RelativeBias(nn.Module):
    """The bias [1, H, L, M] of every head on every pair of positions; of a step's readers [B, H, 1, M] on all slots."""

    config: T5Config
    bidirectional: bool

    @nn.compact
    def __call__(self, L, M, step=None):
        c = self.config
        L, M = (L, M) if step is None else (step.slots, step.slots)
        table = self.param("table", nn.initializers.normal(c.width**-0.5), (c.buckets, c.num_heads))
        distance_R = np.arange(1 - L, M)
        bucket_R = bucket(
            distance_R,
            bidirectional=self.bidirectional,
            buckets=c.buckets,
            max_distance=c.max_distance,
        )
        # In float32, in which all layers' gradients then add up.
        bias_HR = table[bucket_R].T.astype(jnp.float32)
        if step is not None:
            distance_BM = np.arange(M) - step.position_B[:, None]
            return bias_HR.T[distance_BM + L - 1].swapaxes(1, 2)[:, :, None]
        return shear(bias_HR, L)[None]


def shear(bias_HR, L):
    """[H, L, M] whose entry (l, m) is that of distance m - l, from [H, R = L + M - 1] of distances 1 - L ... M - 1.

    Copies that are one entry too long slide by one from row to row: no gather, whose gradient would be a scatter.
    """
    H, R = bias_HR.shape
    flat = jnp.tile(jnp.pad(bias_HR, ((0, 0), (0, 1))), L)
    return flat[:, : L * R].reshape(H, L, R)[:, :, L - 1 :]


class T5(nn.Module):
    """Return float32 logits [B, L, V] of the labels.

    encoder_token_ids: int32 [B, M]; encoder_attention_mask: bool [B, M], False on padding; labels:
    int32 [B, L], which the decoder reads shifted right by one.

    Dropout falls where the paper's code drops, and as there it drops at all positions of a row at once.
    """

    config: T5Config
    ops: Ops = PLAIN

    def setup(self):
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, shared=(-2,), ops=ops)
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
        mlp = partial(GatedMlp, act=gelu_tanh) if c.gated else partial(Mlp, act=nn.relu)
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
                c.vocab, use_bias=False, kernel_init=FAN_IN, result=jnp.float32, ops=ops
            )

    def __call__(self, encoder_token_ids, encoder_attention_mask, labels, train=False):
        return self.logits(self.states(encoder_token_ids, encoder_attention_mask, labels, train))

    def states(self, encoder_token_ids, encoder_attention_mask, labels, train=False):
        """What `logits` reads to tell each of the targets: [B, L, D]."""
        memory_BMD = self.encode(encoder_token_ids, encoder_attention_mask, train)
        return self.decode(memory_BMD, encoder_attention_mask, shift_right(labels), train)

    def encode(self, encoder_token_ids, encoder_attention_mask, train=False):
        """What the decoder reads: [B, M, D]."""
        drop = partial(self.drop, deterministic=not train)
        M = encoder_token_ids.shape[1]
        x = drop(self.token_embedding(encoder_token_ids))
        x = self.encoder(
            x, train, mask=padding_mask(encoder_attention_mask), bias=self.encoder_bias(M, M)
        )
        return drop(self.encoder_norm(x))

    def decode(self, memory_BMD, encoder_attention_mask, decoder_token_ids, train=False, step=None):
        """Hidden states [B, L, D], of which position l has read tokens up to l and is to tell the next one.

        step: where the tokens [B, 1] stand behind others that the cache holds, a `models.layers.cache.Step`.
        """
        drop = partial(self.drop, deterministic=not train)
        L = decoder_token_ids.shape[1]
        read = {"memory_BMD": memory_BMD, "memory_mask": padding_mask(encoder_attention_mask)}
        y = drop(self.token_embedding(decoder_token_ids))
        y = self.decoder(
            y, train, **read, mask=causal_mask(step=step), bias=self.decoder_bias(L, L, step)
        )
        return drop(self.decoder_norm(y))

    def logits(self, y_BLD):
        """Scores of every word, float32 [B, L, V]."""
        if self.config.tied:
            return (
                self.token_embedding.attend(y_BLD) * self.config.width**-0.5
            )  # the embeddings are as large as N(0, 1)
        return self.lm_head(y_BLD)


def shift_right(labels):
    """Return what the decoder reads to predict the labels: the start id 0, then all but the last."""
    return jnp.pad(labels, ((0, 0), (1, 0)))[:, :-1]
