"""ModernBERT (Warner et al. 2024): an encoder whose layers are local, but for every third.

A gated feed-forward network, rotary positions, norms before the sublayers, and no biases
(section 2.1). It predicts masked tokens alone. models/modernbert_decoder.py has its causal twin, of
the same parameters.

B batch   L length   D width
"""

import math
from functools import partial

import flax.linen as nn
import jax

from models.config.modernbert import ModernBertConfig, ModernBertSizes
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.encoder import MaskedLanguageModel
from models.layers.heads import StateTransform, TiedHead, average_tokens
from models.layers.linear import Embed, ModuleFactory
from models.layers.masks import Mask, make_padding_mask
from models.layers.mlp import GatedMlp, gelu
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.rotary import Rotation, check_length, find_positions, make_rotation
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


class LocalThenGlobal(nn.Module):
    """Local layers, then a global one (section 2.1.2), as one layer of a stack that is scanned.

    layer: the constructor of either.
    num_local: the number of local layers.
    has_global: whether a global layer follows.
    window: of the masks of local layers, see `models.layers.masks.Mask`.
    """

    layer: ModuleFactory
    num_local: int
    window: int
    has_global: bool = True
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        mask: Mask,
        local_rotation: Rotation,
        global_rotation: Rotation,
    ) -> jax.Array:
        """Return activations [B, L, D]; mask: for the global layer."""
        local_mask = mask.replace(window=self.window)
        layers = [(f"local_{i}", local_mask, local_rotation) for i in range(self.num_local)]
        if self.has_global:
            layers.append(("global", mask, global_rotation))
        for i, (name, mask, rotation) in enumerate(layers):
            if i:  # The stack constrains what goes into the first.
                x_BLD = self.ops.constrain(x_BLD)
            x_BLD = self.layer(name=name)(x_BLD, train, mask=mask, rotation=rotation)
        return x_BLD


def make_layer(config: ModernBertSizes, ops: Ops) -> partial[PreNormLayer]:
    """Return the constructor of a layer, local or global."""
    c = config
    # Megatron's initialization (section 2.2): the deeper, the smaller what joins the stream.
    residual_init = nn.initializers.truncated_normal(0.02 / math.sqrt(2 * c.depth))
    return partial(
        PreNormLayer,
        attention=partial(Attention, c.num_heads, use_bias=False, out_init=residual_init, ops=ops),
        mlp=partial(
            GatedMlp,
            c.mlp,
            activation=gelu,
            use_bias=False,
            down_init=residual_init,
            ops=ops,
        ),
        norm=partial(LayerNorm, c.epsilon, ops, use_bias=False),
        dropout=partial(Dropout, c.dropout, ops=ops),
        mlp_dropout=partial(Dropout, 0.0),
        ops=ops,
    )


def make_stack(config: ModernBertSizes, ops: Ops) -> Stack:
    """Return the layers: a global one that reads normed embeddings, then groups that end in one."""
    c = config
    layer = make_layer(c, ops)
    group = partial(LocalThenGlobal, window=c.mask_window, ops=ops)
    num_rest = (c.depth - 1) % c.global_every
    return Stack(
        partial(group, layer, c.global_every - 1),
        c.num_groups,
        scan=c.scan,
        remat=c.remat,
        first=partial(group, partial(layer, norms_input=False), 0),
        last=partial(group, layer, num_rest, has_global=False) if num_rest else None,
        ops=ops,
    )


class ModernBertBody(Model):
    """Embeddings, layers, final norm and head: all parameters of the encoder and of its twin."""

    config: ModernBertSizes

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, ops=self.ops)
        self.embedding_norm = LayerNorm(c.epsilon, self.ops, use_bias=False)
        self.encoder = make_stack(c, self.ops)
        self.final_norm = LayerNorm(c.epsilon, self.ops, use_bias=False)
        self.head = StateTransform(c.epsilon, ops=self.ops)
        self.mlm_head = TiedHead(self.ops)

    def run_layers(
        self, token_ids: jax.Array, train: bool, mask: Mask, positions_BL: jax.Array
    ) -> jax.Array:
        """Return the last hidden states [B, L, D].

        Args:
          token_ids: int32 [B, L].
          train: whether dropout is applied.
          mask: of the global layers; local ones also have a window.
          positions_BL: int32, of the rotation of queries and keys; B is 1 if rows do not differ.
        """
        c = self.config
        local_rotation, global_rotation = (
            make_rotation(positions_BL, c.width // c.num_heads, base)
            for base in (c.local_rotary_base, c.global_rotary_base)
        )
        x_BLD = self.encoder(
            self.embedding_norm(self.token_embedding(token_ids)),
            train,
            mask=mask,
            local_rotation=local_rotation,
            global_rotation=global_rotation,
        )
        return self.final_norm(x_BLD)

    def transform(self, x: jax.Array) -> jax.Array:
        """Return what heads read of hidden states [..., D]."""
        return self.head(x)

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(self.transform(x_BPD), self.token_embedding)


class ModernBert(ModernBertBody, MaskedLanguageModel):
    """Masked words; `token_type_ids` are not read."""

    config: ModernBertConfig

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
        L = token_ids.shape[1]
        check_length(L, self.config.length)
        x_BLD = self.run_layers(
            token_ids,
            train,
            make_padding_mask(attention_mask, segment_ids),
            find_positions(L, segment_ids),
        )
        return x_BLD, self.pool(x_BLD, attention_mask)

    def pool(self, x_BLD: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """Return the state of the [CLS], or the mean of all tokens' states, [B, D]."""
        if self.config.pooling == "cls":
            return x_BLD[:, 0]
        return average_tokens(x_BLD, attention_mask)
