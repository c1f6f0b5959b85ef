"""ESM-2 (Lin et al. 2023): an encoder of proteins, which reads a letter for each amino acid.

Norms before the sublayers and rotary positions (supplement, section A.1). Masks are embedded as 0:
they are dropped inputs, and the other embeddings are scaled as after dropout. It predicts masked
residues alone.

B batch   L length   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.esm2 import Esm2Config
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.encoder import MaskedLanguageModel
from models.layers.heads import MaskedLMHead
from models.layers.linear import Embed
from models.layers.masks import make_padding_mask
from models.layers.mlp import Mlp
from models.layers.norms import LayerNorm
from models.layers.ops import Ops
from models.layers.rotary import check_length, find_positions, make_rotation
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer

# What training leaves of a row: 80 % of the 15 % that are predicted become masks.
LEFT = 1 - 0.15 * 0.8


def make_stack(config: Esm2Config, ops: Ops) -> Stack:
    """Return the layers."""
    c = config
    layer = partial(
        PreNormLayer,
        attention=partial(
            Attention, c.num_heads, dropout=partial(Dropout, c.attention_dropout, ops=ops), ops=ops
        ),
        mlp=partial(Mlp, c.mlp, ops=ops),
        norm=partial(LayerNorm, c.epsilon, ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
        ops=ops,
    )
    return Stack(layer, c.depth, scan=c.scan, remat=c.remat, ops=ops)


def count_in_text(counted_BL: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """Return how many tokens of each token's text are counted, float32 [B, L] or [B, 1].

    Args:
      counted_BL: bool.
      segment_ids: int32 [B, L], the packed text of each token; None: one text a row.
    """
    counted_BL = counted_BL.astype(jnp.float32)
    if segment_ids is None:
        return counted_BL.sum(axis=1, keepdims=True)
    add_up = partial(jax.ops.segment_sum, num_segments=segment_ids.shape[1] + 1)
    sums_BS = jax.vmap(add_up)(counted_BL, segment_ids)
    return jnp.take_along_axis(sums_BS, segment_ids, axis=1)


def drop_masks(
    x_BLD: jax.Array,
    is_mask_BL: jax.Array,
    attention_mask: jax.Array,
    segment_ids: jax.Array | None = None,
) -> jax.Array:
    """Return embeddings [B, L, D] that are 0 at masks, and scaled by 0.88 / (unmasked share).

    The share is of each text, special tokens included; without a mask the factor is 0.88. As in
    the authors' code.

    Args:
      is_mask_BL: bool.
      attention_mask: bool [B, L], False on padding.
      segment_ids: as in `count_in_text`.
    """
    real = count_in_text(attention_mask, segment_ids)
    unmasked = count_in_text(attention_mask & ~is_mask_BL, segment_ids)
    # A text of masks alone is 0 everywhere, whatever the factor.
    scale = LEFT * real / jnp.maximum(unmasked, 1.0)
    scaled_BLD = x_BLD * scale[..., None].astype(x_BLD.dtype)
    return jnp.where(is_mask_BL[..., None], jnp.zeros_like(scaled_BLD), scaled_BLD)


class Esm2(MaskedLanguageModel):
    """Masked residues; `token_type_ids` are not read."""

    config: Esm2Config

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, ops=self.ops)
        self.encoder = make_stack(c, self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)
        # A logistic regression on the attention of all heads: whether two residues touch (Rao et
        # al. 2021, section 3). Predicting masks does not train it.
        zeros = nn.initializers.zeros
        self.contact_weights = self.param("contact_weights", zeros, (c.depth * c.num_heads,))
        self.contact_bias = self.param("contact_bias", zeros, (1,))

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
        x_BLD = self.token_embedding(token_ids)
        if c.drops_masks:
            is_mask_BL = token_ids == c.mask_id
            x_BLD = drop_masks(x_BLD, is_mask_BL, attention_mask.astype(bool), segment_ids)
        rotation = make_rotation(
            find_positions(L, segment_ids), c.width // c.num_heads, c.rotary_base, c.rotary_rates
        )
        x_BLD = self.encoder(
            x_BLD, train, mask=make_padding_mask(attention_mask, segment_ids), rotation=rotation
        )
        x_BLD = self.norm(x_BLD)
        return x_BLD, x_BLD[:, 0]

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.token_embedding)
