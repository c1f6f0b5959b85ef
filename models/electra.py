"""ELECTRA (Clark et al. 2020): an encoder that detects which tokens a small generator replaced.

The generator is trained to predict masked tokens, as BERT is. Tokens sampled from it replace the
masked ones, and the discriminator predicts of each token whether it was replaced. No gradient flows
through the sampling, so the two are not adversarial (section 2). They share the token and position
embeddings (section 3.2).

B batch   L length   P masked positions   D width   E embedding width   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.electra import ElectraConfig
from models.layers.encoder import make_embeddings, make_stack
from models.layers.heads import MaskedLMHead, gather_positions
from models.layers.linear import Dense
from models.layers.masks import make_padding_mask
from models.layers.mlp import gelu
from models.layers.model import Model
from models.layers.ops import PLAIN, Ops

# Positions of a row whose logits exist at the same time while tokens are sampled.
POSITIONS_PER_CHUNK = 32


class ElectraEncoder(nn.Module):
    """BERT's layers, with a linear map in front where the embeddings are narrower or wider.

    width: D. num_heads: attention heads. mlp: width of a feed-forward network's hidden layer.
    """

    config: ElectraConfig
    width: int
    num_heads: int
    mlp: int
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self,
        x_BLE: jax.Array,
        attention_mask: jax.Array,
        train: bool,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the last hidden states [B, L, D] of embeddings [B, L, E]."""
        c = self.config
        x_BLD = (
            x_BLE
            if self.width == c.embedding
            else Dense(self.width, ops=self.ops, name="embedding_projection")(x_BLE)
        )
        stack = make_stack(
            c,
            c.depth,
            self.num_heads,
            self.mlp,
            ops=self.ops,
            name="encoder",
        )
        return stack(x_BLD, train, mask=make_padding_mask(attention_mask, segment_ids))


class DiscriminatorHead(nn.Module):
    """Logits of "this token was replaced" (section 2); the hidden layer is the authors' code's."""

    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return logits, float32 [B, L]."""
        hidden_BLD = Dense(x_BLD.shape[-1], ops=self.ops, name="transform")(x_BLD)
        hidden_BLD = self.ops.recompute(gelu)(hidden_BLD)
        return Dense(1, out_dtype=jnp.float32, ops=self.ops, name="score")(hidden_BLD)[..., 0]


class Electra(Model):
    """Generator and discriminator (section 2, figure 2)."""

    encodes = True
    config: ElectraConfig

    def setup(self) -> None:
        """Make the shared embeddings, the two networks and their heads."""
        c = self.config
        encoder = partial(ElectraEncoder, c, ops=self.ops)
        self.embeddings = make_embeddings(c, c.embedding, c.segments, ops=self.ops)
        self.generator = encoder(c.generator_width, c.generator_num_heads, c.generator_mlp)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)
        self.discriminator = encoder(c.width, c.num_heads, c.mlp)
        self.discriminator_head = DiscriminatorHead(self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        labels: jax.Array | None = None,
        label_weights: jax.Array | None = None,
        uniforms: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the generator's logits of tokens, and the discriminator's logits of "replaced".

        Args:
          token_ids: int32 [B, L].
          attention_mask: bool [B, L], False on padding.
          token_type_ids: int32 [B, L]; all 0 by default.
          masked_positions: int32 [B, P]; all positions by default.
          segment_ids: int32 [B, L], from 1, the packed text that a token belongs to. A token
            attends to its own text only. None: one text a row.
          labels: int32 [B, P], the original tokens at the masked positions.
          label_weights: float32 [B, P], 0 on slots without a masked token.
          uniforms: float32 [B, P] in [0, 1); each selects a sampled token. Equal numbers select
            equal tokens, on any mesh and in any microbatch. None: nothing is replaced.
          train: whether dropout is applied.

        Returns:
          Logits of tokens, float32 [B, P, V], or [B, L, V] without `masked_positions`; logits of
          "replaced", float32 [B, L].

        Raises:
          ValueError: `uniforms` without `label_weights`.
        """
        x_BPD, replaced_logits_BL, _ = self.compute_states(
            token_ids,
            attention_mask,
            token_type_ids,
            masked_positions,
            segment_ids,
            labels,
            label_weights,
            uniforms,
            train,
        )
        return self.compute_logits(x_BPD), replaced_logits_BL

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        labels: jax.Array | None = None,
        label_weights: jax.Array | None = None,
        uniforms: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the generator's states, the discriminator's logits, and which tokens differ.

        Arguments: as in `__call__`.

        Returns:
          States [B, P, D] that `compute_logits` reads; logits of "replaced", float32 [B, L]; bool
          [B, L], True where the sampled token is not the original one.
        """
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.generate_states(token_ids, attention_mask, token_type_ids, train, segment_ids)
        x_BPD = gather_positions(x_BLD, masked_positions, self.ops)
        is_replaced_BL = jnp.zeros_like(attention_mask)
        if uniforms is not None:
            if label_weights is None:
                raise ValueError("uniforms fill positions with label_weights above 0: pass both")
            assert masked_positions is not None
            sampled_BP, is_masked_BP = self.sample_tokens(x_BPD, uniforms), label_weights > 0
            token_ids = replace_masked(token_ids, masked_positions, sampled_BP, is_masked_BP)
            # A sampled token that equals the original one counts as original (section 2).
            is_replaced_BL = replace_masked(
                is_replaced_BL, masked_positions, sampled_BP != labels, is_masked_BP
            )
        return (
            x_BPD,
            self.discriminate(token_ids, attention_mask, token_type_ids, train, segment_ids),
            is_replaced_BL,
        )

    def generate_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the generator's last hidden states [B, L, D]."""
        x_BLE = self.embeddings(token_ids, token_type_ids, train, segment_ids)
        return self.generator(x_BLE, attention_mask, train, segment_ids)

    def sample_tokens(self, x_BPD: jax.Array, uniforms: jax.Array) -> jax.Array:
        """Return a token sampled from the generator's distribution at each state, int32 [B, P]."""
        x_BPD = jax.lax.stop_gradient(x_BPD)
        chunks = [
            slice(start, start + POSITIONS_PER_CHUNK)
            for start in range(0, x_BPD.shape[1], POSITIONS_PER_CHUNK)
        ]
        return jnp.concatenate(
            [
                select_by_uniforms(uniforms[:, chunk], self.compute_logits(x_BPD[:, chunk]))
                for chunk in chunks
            ],
            axis=1,
        )

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
        return self.discriminator_head(x_BLD)

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the generator's logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.embeddings.token_embedding)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the discriminator's last hidden states [B, L, D], and the first of a row [B, D].

        The discriminator has no pooler.
        """
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.discriminator(
            self.embeddings(token_ids, token_type_ids, train, segment_ids),
            attention_mask,
            train,
            segment_ids,
        )
        return x_BLD, x_BLD[:, 0]


def select_by_uniforms(uniforms_BP: jax.Array, logits_BPV: jax.Array) -> jax.Array:
    """Return the token that a uniform number selects by inverse transform sampling, int32 [B, P].

    [0, 1) is divided among the tokens in the order of their ids, each with an interval as long as
    its probability.
    """
    cumulative_BPV = jnp.cumsum(jax.nn.softmax(jax.lax.stop_gradient(logits_BPV)), axis=-1)
    uniforms_BP *= cumulative_BPV[..., -1]  # 1, except for rounding
    return (cumulative_BPV <= uniforms_BP[..., None]).sum(-1, dtype=jnp.int32)


def replace_masked(
    row_BL: jax.Array, positions_BP: jax.Array, new_BP: jax.Array, masked_BP: jax.Array
) -> jax.Array:
    """Return `row_BL` with `new_BP` at the positions where `masked_BP` is True.

    Where a position occurs twice, the last of its new values counts, on every device.
    """
    (_, L), (_, P) = row_BL.shape, positions_BP.shape
    is_written_BPL = masked_BP[..., None] & (positions_BP[..., None] == jnp.arange(L))
    last_BL = jnp.where(is_written_BPL, jnp.arange(P)[:, None], -1).max(axis=1)
    new_BL = jnp.take_along_axis(new_BP, jnp.maximum(last_BL, 0), axis=1)
    return jnp.where(last_BL >= 0, new_BL, row_BL)
