"""ELECTRA (Clark et al. 2020): an encoder that learns by telling, of every word, whether it is the text's or a small generator's.

The generator fills masked words as BERT does, and is trained as BERT is. What it writes, the discriminator judges; it is a draw and lets no
gradient through, so the two do not play against each other (section 2). They read the same embeddings (section 3.2).

B batch   L length   P masked positions   D width   E width of a word's vector   V vocabulary
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.electra import ElectraConfig
from models.layers.encoder import make_embeddings, make_stack
from models.layers.heads import MaskedLMHead, take_positions
from models.layers.linear import Dense
from models.layers.masks import padding_mask
from models.layers.mlp import gelu
from models.layers.ops import PLAIN, Ops

AT_ONCE = (
    32  # positions of a row whose scores of all words exist at the same time while words are drawn
)


class Encoder(nn.Module):
    """BERT's layers, of a width that the words' vectors need not have."""

    config: ElectraConfig
    width: int
    num_heads: int
    mlp: int
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLE, attention_mask, train, segment_ids=None):
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
        return stack(x_BLD, train, mask=padding_mask(attention_mask, segment_ids))


class DiscriminatorHead(nn.Module):
    """One logit a position: was its word replaced? (section 2; the hidden layer is that of the authors' code)."""

    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD):
        h_BLD = Dense(x_BLD.shape[-1], ops=self.ops, name="transform")(x_BLD)
        h_BLD = self.ops.recompute(gelu)(h_BLD)
        return Dense(1, ops=self.ops, name="score")(h_BLD)[..., 0].astype(jnp.float32)


class Electra(nn.Module):
    """Masked words, and replaced words.

    token_ids, token_type_ids: int32 [B, L]; masked_positions: int32 [B, P]; attention_mask: bool
    [B, L], False on padding. Returns float32 logits: the generator's, of the words at
    `masked_positions` [B, P, V], or everywhere without them; and the discriminator's, of "replaced"
    [B, L], for the row as the generator fills it, or as it is without `uniforms`.
    segment_ids: int32 [B, L], the text that a token belongs to, from 1, where a row has several side
    by side, none of which reads another.
    labels: int32 [B, P], the words of the text at the masked positions; label_weights: float32
    [B, P], 0 on slots that only fill up a row; uniforms: float32 [B, P], from 0 to below 1, each of
    which draws a word: the same ones draw the same words, on any mesh and in any part of a batch.
    """

    config: ElectraConfig
    ops: Ops = PLAIN

    def setup(self):
        c = self.config
        encoder = partial(Encoder, c, ops=self.ops)
        self.embeddings = make_embeddings(c, c.embedding, c.segments, ops=self.ops)
        self.generator = encoder(c.generator_width, c.generator_num_heads, c.generator_mlp)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)
        self.discriminator = encoder(c.width, c.num_heads, c.mlp)
        self.discriminator_head = DiscriminatorHead(self.ops)

    def __call__(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        labels=None,
        label_weights=None,
        uniforms=None,
        train=False,
    ):
        x_BPD, replaced_logits_BL, _ = self.states(
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
        return self.logits(x_BPD), replaced_logits_BL

    def states(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        labels=None,
        label_weights=None,
        uniforms=None,
        train=False,
    ):
        """What `logits` reads to tell the words [B, P, D]; the logits [B, L] of "replaced"; and bool [B, L], what is replaced."""
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BPD = self.generator(
            self.embeddings(token_ids, token_type_ids, train, segment_ids),
            attention_mask,
            train,
            segment_ids,
        )
        x_BPD = take_positions(x_BPD, masked_positions)
        replaced_BL = jnp.zeros_like(attention_mask)
        if uniforms is not None:
            if label_weights is None:
                raise ValueError("uniforms fill positions with label_weights above 0: pass both")
            drawn_BP, masked_BP = self.draw(x_BPD, uniforms), label_weights > 0
            token_ids = put(token_ids, masked_positions, drawn_BP, masked_BP)
            # Where the generator writes what stood there, nothing is replaced.
            replaced_BL = put(replaced_BL, masked_positions, drawn_BP != labels, masked_BP)
        return (
            x_BPD,
            self.discriminate(token_ids, attention_mask, token_type_ids, train, segment_ids),
            replaced_BL,
        )

    def draw(self, x_BPD, uniforms):
        """Draw a word for each state, int32 [B, P], as likely as the generator finds it."""
        x_BPD = jax.lax.stop_gradient(x_BPD)
        parts = [slice(start, start + AT_ONCE) for start in range(0, x_BPD.shape[1], AT_ONCE)]
        return jnp.concatenate(
            [word_at(uniforms[:, part], self.logits(x_BPD[:, part])) for part in parts], axis=1
        )

    def discriminate(
        self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None
    ):
        """float32 logits [B, L] of "this word was replaced"."""
        x_BLD, _ = self.encode(token_ids, attention_mask, token_type_ids, train, segment_ids)
        return self.discriminator_head(x_BLD)

    def logits(self, x_BPD):
        """The generator's scores of every word, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.embeddings.token_embedding)

    def encode(self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None):
        """The discriminator's last hidden states [B, L, D], and the first one of each row [B, D]: it has no pooler."""
        token_type_ids = jnp.zeros_like(token_ids) if token_type_ids is None else token_type_ids
        x_BLD = self.discriminator(
            self.embeddings(token_ids, token_type_ids, train, segment_ids),
            attention_mask,
            train,
            segment_ids,
        )
        return x_BLD, x_BLD[:, 0]


def word_at(uniforms_BP, logits_BPV):
    """Return the word v whose share of [0, 1) holds the uniform number, int32 [B, P].

    The share is as long as the word's probability and lies behind those of all words before it.
    """
    below_BPV = jnp.cumsum(jax.nn.softmax(jax.lax.stop_gradient(logits_BPV)), axis=-1)
    uniforms_BP *= below_BPV[..., -1]  # which rounding leaves beside 1
    return (below_BPV <= uniforms_BP[..., None]).sum(-1, dtype=jnp.int32)


def put(row_BL, positions_BP, new_BP, masked_BP):
    """The rows with `new` at those positions that are masked."""
    behind = row_BL.shape[1]  # a row's end, where nothing is written
    return jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))(
        row_BL, jnp.where(masked_BP, positions_BP, behind), new_BP
    )
