"""T5Gemma (Zhang et al. 2025): T5's encoder-decoder, built of the layers of Gemma 2.

Gemma 2 (Gemma Team 2024, section 2) normalises before and after each sublayer, bounds attention
scores and logits by a tanh, and attends locally in every other layer. Cross-attention is global.

B batch   L target length   M input length   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.t5gemma import T5GemmaConfig
from models.layers.attention import Attention
from models.layers.cache import DecodingStep
from models.layers.dropout import Dropout
from models.layers.encoder_decoder import EncoderDecoder
from models.layers.linear import Embed, ModuleFactory
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.mlp import GatedMlp, gelu_tanh
from models.layers.norms import RMSNorm
from models.layers.ops import PLAIN, Ops, cap_values
from models.layers.rotary import Rotation, check_length, find_positions, make_rotation
from models.layers.stack import Stack
from models.layers.wiring import SandwichLayer

INIT = nn.initializers.normal(0.02)  # of transformers; the paper names none


class LocalAndGlobal(nn.Module):
    """A local layer and a global one (Gemma 2, section 2), as one layer of a stack.

    layer: the constructor of either.
    window: of the local layer's mask.
    has_global: whether the global layer follows.
    """

    layer: ModuleFactory
    window: int
    has_global: bool = True
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, train: bool, mask: Mask, **arguments: jax.Array | Mask | Rotation
    ) -> jax.Array:
        """Return activations [B, L, D]; mask: of the global layer's self-attention."""
        local_mask = mask.replace(window=self.window)
        x_BLD = self.layer(name="local")(x_BLD, train, mask=local_mask, **arguments)
        if not self.has_global:
            return x_BLD
        return self.layer(name="global")(self.ops.constrain(x_BLD), train, mask=mask, **arguments)


class T5Gemma(EncoderDecoder):
    """T5Gemma's encoder-decoder. The output shares the decoder's embeddings, not the encoder's."""

    config: T5GemmaConfig

    def setup(self) -> None:
        """Make embeddings, encoder and decoder."""
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, ops=ops)
        norm = partial(RMSNorm, c.epsilon, ops=ops, offset=1.0)
        attention = partial(
            Attention,
            c.num_heads,
            c.head_width,
            use_bias=False,
            kernel_init=INIT,
            soft_cap=c.attention_cap,
            num_key_heads=c.num_key_heads,
            ops=ops,
        )
        layer = partial(
            SandwichLayer,
            attention=attention,
            mlp=partial(
                GatedMlp,
                c.mlp,
                activation=gelu_tanh,
                use_bias=False,
                kernel_init=INIT,
                dropout=dropout,
                ops=ops,
            ),
            norm=norm,
            dropout=dropout,
        )

        def make_stack(layer: ModuleFactory, depth: int, window: int) -> Stack:
            pair = partial(LocalAndGlobal, layer, window, ops=ops)
            last = partial(pair, has_global=False) if depth % 2 else None
            return Stack(pair, depth // 2, scan=c.scan, remat=c.remat, last=last, ops=ops)

        self.token_embedding = Embed(c.vocab, c.width, INIT, ops)
        # A mask that is not causal has a window of both sides together.
        self.encoder = make_stack(layer, c.depth, 2 * c.window)
        self.encoder_norm = norm()
        self.target_embedding = Embed(c.vocab, c.width, INIT, ops)
        self.decoder = make_stack(partial(layer, cross=attention), c.decoder_depth, c.window)
        self.decoder_norm = norm()
        self.drop = dropout()

    def encode(
        self, encoder_token_ids: jax.Array, encoder_attention_mask: jax.Array, train: bool = False
    ) -> jax.Array:
        """Return the encoder's states [B, M, D]. Raises as `rotate_positions`."""
        drop = partial(self.drop, deterministic=not train)
        x_BMD = self.encoder(
            drop(self.embed(self.token_embedding, encoder_token_ids)),
            train,
            mask=make_padding_mask(encoder_attention_mask),
            rotation=self.rotate_positions(encoder_token_ids.shape[1]),
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
        """Return the decoder's states [B, L, D]. Raises as `rotate_positions`."""
        drop = partial(self.drop, deterministic=not train)
        y_BLD = self.decoder(
            drop(self.embed(self.target_embedding, decoder_token_ids)),
            train,
            mask=make_causal_mask(step=step),
            memory_BMD=memory_BMD,
            memory_mask=make_padding_mask(encoder_attention_mask),
            rotation=self.rotate_positions(decoder_token_ids.shape[1], step),
        )
        return drop(self.decoder_norm(y_BLD))

    def compute_logits(self, y_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return cap_values(self.target_embedding.attend(y_BLD), self.config.logit_cap)

    def embed(self, table: Embed, ids: jax.Array) -> jax.Array:
        """Return the embeddings of ids times the root of the width, [B, L, D]."""
        x_BLD = table(ids)
        return x_BLD * jnp.asarray(self.config.width**0.5, x_BLD.dtype)

    def rotate_positions(self, L: int, step: DecodingStep | None = None) -> Rotation:
        """Return the rotation of the first L positions, or of a step's tokens.

        Raises:
          ValueError: L, or the slots of the step's cache, are above the model's length.
        """
        c = self.config
        check_length(L if step is None else step.num_slots, c.length)
        positions_BL = find_positions(L) if step is None else step.position_B[:, None]
        return make_rotation(positions_BL, c.head_width, c.rotary_base)
