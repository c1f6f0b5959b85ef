"""DistilBERT (Sanh et al. 2019): half of BERT's layers learn what all of BERT thinks of each masked word, not only which word it was.

Three losses: the masked word itself, the teacher's whole distribution over words, softened, and the direction of the teacher's states
(section 3). The teacher is BERT as it was trained, and learns nothing.

B batch   L length   P masked positions   D width   V vocabulary
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.distilbert import DistilBertConfig
from models.layers.encoder import MaskedLanguageModel, make_embeddings, make_stack
from models.layers.heads import MaskedLMHead, take_positions
from models.layers.masks import padding_mask
from models.layers.ops import PLAIN, Ops

TEMPERATURE = 2.0  # of both distributions: the unlikely words count for more (the authors' code; the paper leaves it open)


class DistillationLosses(NamedTuple):
    """What the student is still to learn of its teacher: 0 where it has."""

    words_BP: jax.Array  # nats between the softened distributions of a masked word, times TEMPERATURE^2 (Hinton et al. 2015, section 2)
    states_BL: jax.Array  # 1 - cosine between the last states of a token


class TextEncoder(nn.Module):
    """BERT's encoder and its head for words, which teacher and student both are."""

    config: DistilBertConfig
    depth: int
    segments: int
    ops: Ops = PLAIN

    def setup(self):
        c = self.config
        self.embeddings = make_embeddings(c, c.width, self.segments, ops=self.ops)
        self.encoder = make_stack(c, self.depth, c.num_heads, c.mlp, ops=self.ops)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)

    def __call__(self, token_ids, attention_mask, train=False, segment_ids=None):
        x_BLD = self.embeddings(token_ids, jnp.zeros_like(token_ids), train, segment_ids)
        return self.encoder(x_BLD, train, mask=padding_mask(attention_mask, segment_ids))

    def logits(self, x_BPD):
        return self.mlm_head(x_BPD, self.embeddings.token_embedding)


class DistilBert(MaskedLanguageModel):
    """token_ids, segment_ids: int32 [B, L]; masked_positions: int32 [B, P]; attention_mask: bool [B, L].

    attention_mask is False on padding; segment_ids tells the text of a row that a token belongs to, from 1.

    Returns the student's float32 logits of the words at `masked_positions` [B, P, V], or everywhere without them, and a `DistillationLosses`, or
    None without a teacher. DistilBERT has no token types: `token_type_ids` are not read.
    """

    config: DistilBertConfig

    def setup(self):
        c = self.config
        self.student = TextEncoder(c, c.depth, 0, self.ops)
        self.teacher = (
            TextEncoder(c, c.teacher_depth, c.segments, self.ops) if c.teacher_depth else None
        )

    def states(
        self,
        token_ids,
        attention_mask,
        token_type_ids=None,
        masked_positions=None,
        segment_ids=None,
        train=False,
    ):
        """What `logits` reads to tell the words [B, P, D], and the lesson."""
        x_BLD = self.student(token_ids, attention_mask, train, segment_ids)
        x_BPD = take_positions(x_BLD, masked_positions)
        if self.teacher is None:
            return x_BPD, None
        y_BLD = self.teacher(token_ids, attention_mask, segment_ids=segment_ids)
        expected_BPV = jax.lax.stop_gradient(
            self.teacher.logits(take_positions(y_BLD, masked_positions))
        )
        words_BP = divergence(self.student.logits(x_BPD), expected_BPV)
        return x_BPD, DistillationLosses(words_BP, 1 - cosine(x_BLD, jax.lax.stop_gradient(y_BLD)))

    def logits(self, x_BPD):
        """The student's scores of every word, float32 [B, P, V]."""
        return self.student.logits(x_BPD)

    def encode(self, token_ids, attention_mask, token_type_ids=None, train=False, segment_ids=None):
        """The student's last hidden states [B, L, D], and the first one of each row [B, D]: it has no pooler."""
        x_BLD = self.student(token_ids, attention_mask, train, segment_ids)
        return x_BLD, x_BLD[:, 0]


def divergence(logits_V, expected_V):
    """How far softmax(logits / T) is from softmax(expected / T), in nats, times T^2; over any leading dimensions."""
    student_V, teacher_V = (
        jax.nn.log_softmax(scores_V / TEMPERATURE) for scores_V in (logits_V, expected_V)
    )
    return TEMPERATURE**2 * (jnp.exp(teacher_V) * (teacher_V - student_V)).sum(axis=-1)


def cosine(x_D, y_D):
    """The cosine of the angle between two vectors, float32; over any leading dimensions."""
    x_D, y_D = x_D.astype(jnp.float32), y_D.astype(jnp.float32)
    lengths = jnp.sqrt(jnp.square(x_D).sum(-1) * jnp.square(y_D).sum(-1))
    return (x_D * y_D).sum(-1) / jnp.maximum(lengths, 1e-6)
