"""ESM C (ESM Team 2024, "ESM Cambrian"): an encoder of proteins with Llama's gated networks.

Norms before the sublayers, and of queries and keys before their rotation; what a sublayer adds is
divided by sqrt(depth / 36), as in ESM3 (Hayes et al. 2025). As in the authors' code.

B batch   L length   M keys   D width   H heads   K head width   V vocabulary
"""

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.esmc import EsmcConfig
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.encoder import MaskedLanguageModel
from models.layers.linear import Dense, Embed, ModuleFactory
from models.layers.masks import Mask, make_padding_mask
from models.layers.mlp import GatedMlp, gelu
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.rotary import Rotation, check_length, find_positions, make_rotation, rotate
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer

ALIKE = 36  # layers of a model whose sublayers are added as they are


class NormedAttention(Attention):
    """Attention whose queries and keys are normed over all heads, and then rotated.

    Both `projection` and `relative` are the rotation.
    """

    epsilon: float = 1e-5

    def norm_heads(self, x_BLHK: jax.Array, name: str) -> jax.Array:
        """Return queries or keys of which all heads together are normed."""
        B, L, H, K = x_BLHK.shape
        norm = LayerNorm(self.epsilon, self.ops, use_bias=False, name=name)
        return norm(x_BLHK.reshape(B, L, H * K)).reshape(B, L, H, K)

    def project_source(
        self,
        project: ModuleFactory,
        source_BMD: jax.Array,
        mask: Mask | jax.Array | None,
        projection: Rotation,
    ) -> tuple[jax.Array, jax.Array, Mask | jax.Array | None]:
        """Return the keys, normed and rotated, the values, and their mask."""
        k_BMHK, v_BMHK, mask = super().project_source(project, source_BMD, mask, projection)
        return rotate(self.norm_heads(k_BMHK, "key_norm"), projection), v_BMHK, mask

    def add_terms(
        self, q_BLHK: jax.Array, mask: Any, bias: Any, relative: Rotation
    ) -> tuple[jax.Array, Any]:
        """Return the queries, normed and rotated."""
        return rotate(self.norm_heads(q_BLHK, "query_norm"), relative), bias


class Damping(nn.Module):
    """x * factor: scales what a sublayer adds, where other models drop it out."""

    factor: float
    deterministic: bool = True

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return activations [B, L, D]."""
        return x_BLD * self.factor


class ResidueHead(nn.Module):
    """norm(gelu(x W + b)), from which the vocabulary's logits are computed."""

    epsilon: float
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BPD: jax.Array) -> jax.Array:
        """Return states [B, P, D]."""
        y_BPD = Dense(x_BPD.shape[-1], ops=self.ops, name="transform")(x_BPD)
        y_BPD = self.ops.recompute(gelu)(y_BPD)
        return LayerNorm(self.epsilon, self.ops, name="norm")(y_BPD)


def make_stack(config: EsmcConfig, ops: Ops) -> Stack:
    """Return the layers."""
    c = config
    layer = partial(
        PreNormLayer,
        attention=partial(
            NormedAttention,
            c.num_heads,
            use_bias=False,
            dropout=partial(Dropout, c.dropout, ops=ops),
            ops=ops,
            epsilon=c.epsilon,
        ),
        mlp=partial(GatedMlp, c.mlp, activation=nn.silu, use_bias=False, ops=ops),
        norm=partial(LayerNorm, c.epsilon, ops),
        dropout=partial(Damping, math.sqrt(ALIKE / c.depth)),
        ops=ops,
    )
    return Stack(layer, c.depth, scan=c.scan, remat=c.remat, ops=ops)


class Esmc(MaskedLanguageModel):
    """Masked residues; `token_type_ids` are not read."""

    config: EsmcConfig

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, ops=self.ops)
        self.encoder = make_stack(c, self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops, use_bias=False)
        self.mlm_head = ResidueHead(c.epsilon, self.ops)
        self.lm_head = Dense(c.vocab, out_dtype=jnp.float32, ops=self.ops)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last hidden states [B, L, D], and the state of each row [B, D].

        Raises:
          ValueError: L is above the model's length.
        """
        c, L = self.config, token_ids.shape[1]
        check_length(L, c.length)
        rotation = make_rotation(
            find_positions(L, segment_ids), c.width // c.num_heads, c.rotary_base
        )
        x_BLD = self.encoder(
            self.token_embedding(token_ids),
            train,
            mask=make_padding_mask(attention_mask, segment_ids),
            projection=rotation,
            relative=rotation,
        )
        x_BLD = self.norm(x_BLD)
        return x_BLD, x_BLD[:, 0]

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.lm_head(self.mlm_head(x_BPD))
