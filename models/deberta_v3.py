"""DeBERTa-v3 (He et al. 2021): ELECTRA's replaced tokens on disentangled attention.

Generator and discriminator have the same width, and the generator half of the layers. The token
embeddings of the discriminator are the generator's plus a difference. The difference begins at 0,
and the discriminator's loss reaches it alone: the two losses pull on tables of their own, and yet
the discriminator reads what the generator has learned (section 3.3, equation 5).

The generator has no enhanced mask decoder (He et al. 2020, section 3.2), as in transformers.

B batch   L length   P masked positions   D width   S embeddings of buckets   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.deberta_v3 import DebertaV3Config
from models.electra import Electra
from models.layers.dropout import Dropout
from models.layers.encoder import make_stack
from models.layers.heads import MaskedLMHead
from models.layers.linear import Dense, Embed
from models.layers.masks import make_padding_mask, make_position_ids
from models.layers.mlp import gelu
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.relative.disentangled_attention import (
    DisentangledAttention,
    DisentangledPositions,
)


class DisentangledEncoder(nn.Module):
    """BERT's layers with disentangled attention, on norm(token embeddings).

    depth: [layers].
    """

    config: DebertaV3Config
    depth: int
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the embeddings of the buckets, the norms and the layers."""
        c = self.config
        drop = partial(Dropout, c.dropout, ops=self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops)
        self.drop = drop()
        self.position_embedding = Embed(2 * c.buckets, c.width)
        self.position_norm = LayerNorm(c.epsilon, self.ops)
        self.encoder = make_stack(
            c,
            self.depth,
            c.num_heads,
            c.mlp,
            ops=self.ops,
            attention=partial(DisentangledAttention, position_dropout=drop),
        )

    def __call__(
        self,
        x_BLD: jax.Array,
        attention_mask: jax.Array,
        train: bool,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the last hidden states [B, L, D] of token embeddings [B, L, D].

        Raises:
          ValueError: L is above the model's length.
        """
        c, L = self.config, x_BLD.shape[1]
        if L > c.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {c.length} of the model (model.length). "
                "Positions are relative: a larger model.length needs no new parameters"
            )
        relative = DisentangledPositions(
            self.position_norm(self.position_embedding.embedding), c.max_distance
        )
        x_BLD = self.drop(self.norm(x_BLD), deterministic=not train)
        mask = make_padding_mask(attention_mask, segment_ids)
        return self.encoder(x_BLD, train, mask=mask, relative=relative)


class ReplacedTokenHead(nn.Module):
    """Logits of "this token was replaced", of a token's state and its [CLS]'s: the authors' code's.

    epsilon: added to the variance in the norm.
    """

    epsilon: float
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, first_BLD: jax.Array) -> jax.Array:
        """Return logits, float32 [B, L].

        first_BLD: the state of the first token of each token's text, or [B, 1, D] of each row.
        """
        hidden_BLD = LayerNorm(self.epsilon, self.ops, name="norm")(x_BLD + first_BLD)
        hidden_BLD = Dense(x_BLD.shape[-1], ops=self.ops, name="transform")(hidden_BLD)
        hidden_BLD = self.ops.recompute(gelu)(hidden_BLD)
        return Dense(1, out_dtype=jnp.float32, ops=self.ops, name="score")(hidden_BLD)[..., 0]


class DebertaV3(Electra):
    """Generator and discriminator (section 3); `token_type_ids` are not read."""

    config: DebertaV3Config

    def setup(self) -> None:
        """Make the tables, the two networks and their heads."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, ops=self.ops)
        self.token_delta = Embed(c.vocab, c.width, nn.initializers.zeros, self.ops)
        self.generator = DisentangledEncoder(c, c.generator_depth, self.ops)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)
        self.discriminator = DisentangledEncoder(c, c.depth, self.ops)
        self.discriminator_head = ReplacedTokenHead(c.epsilon, self.ops)

    def generate_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the generator's last hidden states [B, L, D].

        Raises:
          ValueError: there is no generator, or L is above the model's length.
        """
        if not self.config.has_generator:
            raise ValueError(
                "model.has_generator=false is of a fine-tuned model; replaced tokens need true"
            )
        x_BLD = self.token_embedding(token_ids)
        return self.generator(x_BLD, attention_mask, train, segment_ids)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the discriminator's last hidden states [B, L, D], and the first of a row [B, D].

        Raises:
          ValueError: L is above the model's length.
        """
        x_BLD = self.token_embedding(token_ids)
        if self.config.has_generator:
            x_BLD = jax.lax.stop_gradient(x_BLD) + self.token_delta(token_ids)
        x_BLD = self.discriminator(x_BLD, attention_mask, train, segment_ids)
        return x_BLD, x_BLD[:, 0]

    def discriminate(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the logits of "this token was replaced", float32 [B, L]."""
        x_BLD, _ = self.encode(token_ids, attention_mask, token_type_ids, train, segment_ids)
        first_BLD = x_BLD[:, :1]
        if segment_ids is not None:
            start_BL = jnp.arange(x_BLD.shape[1]) - make_position_ids(segment_ids)
            first_BLD = self.ops.take_positions(x_BLD, start_BL)
        return self.discriminator_head(x_BLD, first_BLD)

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the generator's logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.token_embedding)
