"""The Transformer (Vaswani et al. 2017): an encoder-decoder of attention alone, without recurrence or convolution.

Where a word stands is told by sines and cosines added to its vector. One table serves the source, the target and the output; several pairs
may share a row, none of which sees another.

B batch   L target length   M input length   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from models.config.transformer import TransformerConfig
from models.layers.attention import Attention
from models.layers.cache import at
from models.layers.dropout import Dropout
from models.layers.linear import Embed
from models.layers.masks import Mask, causal_mask
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.packing import begins, places
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

START = 0  # the id that a decoder reads before the first one of a target
GLOROT = nn.initializers.variance_scaling(
    1.0, "fan_avg", "uniform"
)  # the paper names none; this is its code's


def sinusoids(length, width):
    """The encodings of positions 0 ... length - 1: float32 [L, D] (section 3.5).

    sin(p / 10000^(2i/D)) in column i and cos of the same in column D/2 + i: the paper's columns 2i and 2i + 1, in the order of its
    code. Raises ValueError for an odd width.
    """
    if width % 2:
        raise ValueError(
            f"a width of {width}: sines and cosines take half of it each, so that it must be even (model.width)"
        )
    rate_I = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angle_LI = np.arange(length)[:, None] * rate_I
    return np.concatenate([np.sin(angle_LI), np.cos(angle_LI)], axis=1).astype(np.float32)


class Transformer(nn.Module):
    """Return float32 logits [B, L, V] of the labels.

    encoder_token_ids: int32 [B, M]; encoder_attention_mask: bool [B, M], False on padding; labels:
    int32 [B, L], which the decoder reads shifted right by one.

    encoder_segment_ids: int32 [B, M], decoder_segment_ids: int32 [B, L]: the pair that a token
    belongs to, where a row has several side by side.
    """

    config: TransformerConfig
    ops: Ops = PLAIN

    def setup(self):
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, ops=ops)
        norm = partial(LayerNorm, c.epsilon, ops=ops)
        attention = partial(
            Attention,
            c.num_heads,
            kernel_init=GLOROT,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        )
        mlp = partial(Mlp, c.mlp, act=nn.relu, kernel_init=GLOROT, ops=ops)
        layer = partial(PostNormLayer, attention=attention, mlp=mlp, norm=norm, dropout=dropout)
        stack = partial(Stack, scan=c.scan, remat=c.remat, ops=ops)

        self.token_embedding = Embed(c.vocab, c.width, nn.initializers.normal(c.width**-0.5), ops)
        self.encoder = stack(layer, c.depth)
        self.decoder = stack(partial(layer, cross=attention), c.decoder_depth)
        self.drop = dropout()

    def __call__(
        self,
        encoder_token_ids,
        encoder_attention_mask,
        labels,
        encoder_segment_ids=None,
        decoder_segment_ids=None,
        train=False,
    ):
        return self.logits(
            self.states(
                encoder_token_ids,
                encoder_attention_mask,
                labels,
                encoder_segment_ids,
                decoder_segment_ids,
                train,
            )
        )

    def states(
        self,
        encoder_token_ids,
        encoder_attention_mask,
        labels,
        encoder_segment_ids=None,
        decoder_segment_ids=None,
        train=False,
    ):
        """What `logits` reads to tell each of the targets: [B, L, D]."""
        memory_BMD = self.encode(
            encoder_token_ids, encoder_attention_mask, encoder_segment_ids, train
        )
        segments = (
            None if decoder_segment_ids is None else (decoder_segment_ids, encoder_segment_ids)
        )
        return self.decode(
            memory_BMD,
            encoder_attention_mask,
            shift_right(labels, decoder_segment_ids),
            segments,
            train,
        )

    def encode(
        self, encoder_token_ids, encoder_attention_mask, encoder_segment_ids=None, train=False
    ):
        """What the decoder reads: [B, M, D]."""
        segments = (
            None if encoder_segment_ids is None else (encoder_segment_ids, encoder_segment_ids)
        )
        x = self.embed(encoder_token_ids, encoder_segment_ids, train)
        return self.encoder(x, train, mask=Mask(encoder_attention_mask, segments))

    def decode(
        self,
        memory_BMD,
        encoder_attention_mask,
        decoder_token_ids,
        segments=None,
        train=False,
        step=None,
    ):
        """Hidden states [B, L, D], of which position l has read tokens up to l and is to tell the next one.

        segments: those of the tokens [B, L] and of the memory [B, M]. step: where the tokens [B, 1] stand behind others that the cache
        holds, a `models.layers.cache.Step`.
        """
        own_BL = None if segments is None else segments[0]
        y = self.embed(decoder_token_ids, own_BL, train, step)
        read = {"memory_BMD": memory_BMD, "memory_mask": Mask(encoder_attention_mask, segments)}
        return self.decoder(y, train, **read, mask=causal_mask(segment_ids_BL=own_BL, step=step))

    def logits(self, y_BLD):
        """Scores of every word, float32 [B, L, V] (section 3.4)."""
        return self.token_embedding.attend(y_BLD)

    def embed(self, token_ids, segment_ids, train, step=None):
        """Each word's vector, times sqrt(D), and its place in its own pair: [B, L, D] (sections 3.4 and 3.5)."""
        L, D = token_ids.shape[1], self.config.width
        x_BLD = self.token_embedding(token_ids) * D**0.5
        places_PD = jnp.asarray(sinusoids(L if step is None else step.slots, D), x_BLD.dtype)
        x_BLD += at(places_PD, L, step) if segment_ids is None else places_PD[places(segment_ids)]
        return self.drop(x_BLD, deterministic=not train)


def shift_right(labels, segment_ids=None):
    """Return what the decoder reads to predict the labels: START, then all but the last, in each segment."""
    shifted_BL = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=START)[:, :-1]
    return shifted_BL if segment_ids is None else jnp.where(begins(segment_ids), START, shifted_BL)
