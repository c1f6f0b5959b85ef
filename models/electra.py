"""ELECTRA (Clark et al. 2020): an encoder that learns by telling, of every word, whether it is the text's or a small generator's.

The generator fills masked words as BERT does, and is trained as BERT is. What it writes, the discriminator judges; it is a draw and lets no
gradient through, so the two do not play against each other (section 2). They read the same embeddings (section 3.2).

B batch   L length   P masked positions   D width   E width of a word's vector   V vocabulary
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.electra import ElectraConfig
from models.layers.attention import attend
from models.layers.encoder import make_embeddings, make_stack, take_positions
from models.layers.heads import WordHead
from models.layers.linear import Dense
from models.layers.masks import padding_mask
from models.layers.mlp import gelu
from models.layers.stack import unchanged

AT_ONCE = (
    32  # positions of a row whose scores of all words exist at the same time while words are drawn
)


class Fill(NamedTuple):
    """What fills the masked positions of a row in training.

    targets: int32 [B, P], the words of the text; masked: bool [B, P], False on slots that only fill up a row; chances: float32
    [B, P], from 0 to below 1, each of which draws a word: the same ones draw the same words, on any mesh and in any part of a batch.
    """

    targets_BP: jax.Array
    masked_BP: jax.Array
    chances_BP: jax.Array


class Encoder(nn.Module):
    """BERT's layers, of a width that the words' vectors need not have."""

    config: ElectraConfig
    width: int
    num_heads: int
    mlp: int
    constrain: Callable = unchanged
    attend: Callable = attend

    @nn.compact
    def __call__(self, x_BLE, valid_BL, train, pieces_BL=None):
        c = self.config
        x_BLD = x_BLE if self.width == c.embedding else Dense(self.width, name="widen")(x_BLE)
        stack = make_stack(
            c,
            c.depth,
            self.num_heads,
            self.mlp,
            attend=self.attend,
            constrain=self.constrain,
            name="encoder",
        )
        return stack(x_BLD, train, mask=padding_mask(valid_BL, pieces_BL))


class Judgement(nn.Module):
    """One logit a position: was its word replaced? (section 2; the hidden layer is that of the authors' code)."""

    @nn.compact
    def __call__(self, x_BLD):
        h_BLD = gelu(Dense(x_BLD.shape[-1], name="transform")(x_BLD))
        return Dense(1, name="score")(h_BLD)[..., 0].astype(jnp.float32)


class Electra(nn.Module):
    """Masked words, and replaced words.

    tokens_BL, segments_BL, positions_BP: int32; valid_BL: bool, False on padding. Returns float32 logits: the generator's, of the
    words at `positions_BP` [B, P, V], or everywhere without them; and the discriminator's, of "replaced" [B, L], for the row as the
    generator fills it, or as it is without a `Fill`.
    pieces_BL: int32, the text that a token belongs to, from 1, where a row has several side by side, none of which reads another.
    """

    config: ElectraConfig
    constrain: Callable = unchanged
    attend: Callable = attend

    def setup(self):
        c = self.config
        encoder = partial(Encoder, c, constrain=self.constrain, attend=self.attend)
        self.embeddings = make_embeddings(c, c.embedding, c.segments)
        self.generator = encoder(c.generator_width, c.generator_num_heads, c.generator_mlp)
        self.word = WordHead(c.epsilon)
        self.discriminator = encoder(c.width, c.num_heads, c.mlp)
        self.judgement = Judgement()

    def __call__(
        self,
        tokens_BL,
        valid_BL,
        segments_BL=None,
        positions_BP=None,
        fill=None,
        pieces_BL=None,
        train=False,
    ):
        x_BPD, judged_BL, _ = self.states(
            tokens_BL, valid_BL, segments_BL, positions_BP, fill, pieces_BL, train
        )
        return self.logits(x_BPD), judged_BL

    def states(
        self,
        tokens_BL,
        valid_BL,
        segments_BL=None,
        positions_BP=None,
        fill=None,
        pieces_BL=None,
        train=False,
    ):
        """What `logits` reads to tell the words [B, P, D]; the logits [B, L] of "replaced"; and bool [B, L], what is replaced."""
        segments_BL = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
        x_BPD = self.generator(
            self.embeddings(tokens_BL, segments_BL, train, pieces_BL), valid_BL, train, pieces_BL
        )
        x_BPD = take_positions(x_BPD, positions_BP)
        replaced_BL = jnp.zeros_like(valid_BL)
        if fill is not None:
            drawn_BP = self.draw(x_BPD, fill.chances_BP)
            tokens_BL = put(tokens_BL, positions_BP, drawn_BP, fill.masked_BP)
            # Where the generator writes what stood there, nothing is replaced.
            replaced_BL = put(
                replaced_BL, positions_BP, drawn_BP != fill.targets_BP, fill.masked_BP
            )
        return x_BPD, self.judge(tokens_BL, valid_BL, segments_BL, train, pieces_BL), replaced_BL

    def draw(self, x_BPD, chances_BP):
        """A word for each state, int32 [B, P], as likely as the generator finds it."""
        x_BPD = jax.lax.stop_gradient(x_BPD)
        parts = [slice(start, start + AT_ONCE) for start in range(0, x_BPD.shape[1], AT_ONCE)]
        return jnp.concatenate(
            [word_at(chances_BP[:, part], self.logits(x_BPD[:, part])) for part in parts], axis=1
        )

    def judge(self, tokens_BL, valid_BL, segments_BL=None, train=False, pieces_BL=None):
        """float32 logits [B, L] of "this word was replaced"."""
        x_BLD, _ = self.encode(tokens_BL, valid_BL, segments_BL, train, pieces_BL)
        return self.judgement(x_BLD)

    def logits(self, x_BPD):
        """The generator's scores of every word, float32 [B, P, V]."""
        return self.word(x_BPD, self.embeddings.words)

    def encode(self, tokens_BL, valid_BL, segments_BL=None, train=False, pieces_BL=None):
        """The discriminator's last hidden states [B, L, D], and the first one of each row [B, D]: it has no pooler."""
        segments_BL = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
        x_BLD = self.discriminator(
            self.embeddings(tokens_BL, segments_BL, train, pieces_BL), valid_BL, train, pieces_BL
        )
        return x_BLD, x_BLD[:, 0]


def word_at(chances_BP, logits_BPV):
    """The word v whose share of [0, 1), as long as its probability and behind those of all before it, holds the chance: int32 [B, P]."""
    below_BPV = jnp.cumsum(jax.nn.softmax(jax.lax.stop_gradient(logits_BPV)), axis=-1)
    chances_BP *= below_BPV[..., -1]  # which rounding leaves beside 1
    return (below_BPV <= chances_BP[..., None]).sum(-1, dtype=jnp.int32)


def put(row_BL, positions_BP, new_BP, masked_BP):
    """The rows with `new` at those positions that are masked."""
    behind = row_BL.shape[1]  # a row's end, where nothing is written
    return jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))(
        row_BL, jnp.where(masked_BP, positions_BP, behind), new_BP
    )
