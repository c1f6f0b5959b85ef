"""Music Transformer (Huang et al. 2018): attention by learned embeddings of the distance.

The score of query i and key j is (q_i k_j + q_i e_(i - j)) / sqrt(K), with an embedding e of each
distance in each head (section 3.3, equation 3). The second term is computed for each query and
distance and shifted ("skewed", section 3.4.1), so that no array has an axis of pairs and one of
features. The model is a pre-norm decoder of events, with sinusoids of the position.

B batch   L length   N keys   R distances with an embedding   D width   V vocabulary   H heads
K head width
"""

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from models.config.music_transformer import MusicTransformerConfig
from models.layers.attention import Attention
from models.layers.cache import DecodingStep, look_up_positions
from models.layers.dropout import Dropout
from models.layers.embeddings import make_sinusoids
from models.layers.linear import Embed
from models.layers.masks import Mask, make_causal_mask
from models.layers.mlp import Mlp
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import Ops
from models.layers.relative.distance_bias import DistanceBias
from models.layers.relative.relative_attention import RelativeAttention
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer

# The paper gives no initialisation; we follow the Transformer's code.
GLOROT = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


class DistanceAttention(RelativeAttention):
    """Causal attention with a learned embedding of each distance in each head.

    A distance of `max_distance` or more has the embedding of `max_distance` - 1, as the clipped
    distances of Shaw et al. (2018, section 3.2).
    """

    max_distance: int = 1024

    def add_terms(
        self,
        q_BLHK: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | DistanceBias | None,
        relative: Any,
    ) -> tuple[jax.Array, jax.Array | DistanceBias | None]:
        """Return q, and the term of the distances as the bias.

        relative: int32 [N], the distances that have a column each, the largest first.
        """
        H, K = q_BLHK.shape[2:]
        e_RHK = self.param(
            "relative_embedding", nn.initializers.normal(K**-0.5), (self.max_distance, H, K)
        )
        e_NHK = e_RHK[jnp.minimum(relative, self.max_distance - 1)].astype(q_BLHK.dtype)
        return q_BLHK, self.make_distance_bias(q_BLHK, e_NHK, mask, bias)


def make_layer(config: MusicTransformerConfig, ops: Ops) -> partial[PreNormLayer]:
    """Return the constructor of a layer."""
    c = config
    drop = partial(Dropout, c.dropout, ops=ops)
    kind = partial(DistanceAttention, max_distance=c.max_distance) if c.relative else Attention
    return partial(
        PreNormLayer,
        attention=partial(
            kind,
            num_heads=c.num_heads,
            head_width=c.head_width,
            use_bias=False,
            kernel_init=GLOROT,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        ),
        mlp=partial(Mlp, c.mlp, activation=nn.relu, kernel_init=GLOROT, dropout=drop, ops=ops),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=drop,
    )


class MusicTransformer(Model):
    """The decoder, which predicts the next event of a piece."""

    config: MusicTransformerConfig

    def setup(self) -> None:
        """Make embeddings, layers and final norm."""
        c = self.config
        self.token_embedding = Embed(
            c.vocab, c.width, nn.initializers.normal(c.width**-0.5), self.ops
        )
        self.decoder = Stack(
            make_layer(c, self.ops), c.depth, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.norm = LayerNorm(c.epsilon, self.ops)
        self.drop = Dropout(c.dropout, ops=self.ops)

    def __call__(self, token_ids: jax.Array, train: bool = False) -> jax.Array:
        """Return the logits of the event after each position, float32 [B, L, V].

        token_ids: int32 [B, L]. Padding is allowed on the right: no token attends to it.
        """
        return self.compute_logits(self.compute_states(token_ids, train))

    def compute_states(
        self, token_ids: jax.Array, train: bool = False, step: DecodingStep | None = None
    ) -> jax.Array:
        """Return the states [B, L, D] for `compute_logits`; that at l depends on tokens up to l.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.
        """
        c, L = self.config, token_ids.shape[1]
        N = L if step is None else step.num_slots
        x_BLD = self.token_embedding(token_ids) * math.sqrt(c.width)
        positions_ND = jnp.asarray(make_sinusoids(np.arange(N), c.width), x_BLD.dtype)
        x_BLD += look_up_positions(positions_ND, L, step)
        shared = {"relative": jnp.arange(N - 1, -1, -1)} if c.relative else {}
        x_BLD = self.drop(x_BLD, deterministic=not train)
        x_BLD = self.decoder(x_BLD, train, mask=make_causal_mask(step=step), **shared)
        return self.norm(x_BLD)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.token_embedding.attend(x_BLD)
