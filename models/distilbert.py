"""DistilBERT (Sanh et al. 2019): a student with half of BERT's layers, distilled from BERT.

Three losses (section 2): masked language modelling; the divergence from the teacher's softened
distribution over tokens; and the cosine between the hidden states of student and teacher. The
teacher is a trained BERT and stays fixed.

B batch   L length   P masked positions   D width   V vocabulary
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.distilbert import DistilBertConfig
from models.layers.encoder import MaskedLanguageModel, make_embeddings, make_stack
from models.layers.heads import MaskedLMHead, compute_divergence, gather_positions
from models.layers.masks import make_padding_mask
from models.layers.ops import PLAIN, Ops

# Softens both distributions, so that unlikely tokens have more weight. The paper
# gives no value; we follow the authors' code.
TEMPERATURE = 2.0


class DistillationLosses(NamedTuple):
    """The losses against the teacher.

    divergence_BP: the divergence between the softened distributions of a masked token, in nats,
      times TEMPERATURE^2 (Hinton et al. 2015, section 2).
    cosine_loss_BL: 1 - cosine between the last hidden states of a token.
    """

    divergence_BP: jax.Array
    cosine_loss_BL: jax.Array


class TextEncoder(nn.Module):
    """BERT's encoder and masked-LM head: the student, or the teacher.

    depth: the number of layers.
    num_token_types: the number of token types.
    """

    config: DistilBertConfig
    depth: int
    num_token_types: int
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        self.embeddings = make_embeddings(c, c.width, self.num_token_types, ops=self.ops)
        self.encoder = make_stack(c, self.depth, c.num_heads, c.mlp, ops=self.ops)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the last hidden states [B, L, D]."""
        x_BLD = self.embeddings(token_ids, jnp.zeros_like(token_ids), train, segment_ids)
        return self.encoder(x_BLD, train, mask=make_padding_mask(attention_mask, segment_ids))

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, P, V]."""
        return self.mlm_head(x_BPD, self.embeddings.token_embedding)


class DistilBert(MaskedLanguageModel):
    """Masked language modelling by a student, with its losses against a teacher.

    The call returns the student's logits, and `DistillationLosses` instead of a prediction of the
    row, or None without a teacher. DistilBERT has no token types: `token_type_ids` are ignored.
    """

    config: DistilBertConfig

    def setup(self) -> None:
        """Make student and teacher."""
        c = self.config
        self.student = TextEncoder(c, c.depth, 0, self.ops)
        self.teacher = (
            TextEncoder(c, c.teacher_depth, c.segments, self.ops) if c.teacher_depth else None
        )

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, DistillationLosses | None]:
        """Return the student's states [B, P, D] that `compute_logits` reads, and the losses."""
        x_BLD = self.student(token_ids, attention_mask, train, segment_ids)
        x_BPD = gather_positions(x_BLD, masked_positions, self.ops)
        if self.teacher is None:
            return x_BPD, None
        teacher_BLD = self.teacher(token_ids, attention_mask, segment_ids=segment_ids)
        teacher_logits_BPV = jax.lax.stop_gradient(
            self.teacher.compute_logits(gather_positions(teacher_BLD, masked_positions))
        )
        logits_BPV = self.student.compute_logits(x_BPD)
        divergence_BP = compute_divergence(logits_BPV, teacher_logits_BPV, TEMPERATURE)
        cosine_loss_BL = 1 - compute_cosine(x_BLD, jax.lax.stop_gradient(teacher_BLD))
        return x_BPD, DistillationLosses(divergence_BP, cosine_loss_BL)

    def compute_logits(self, x_BPD: jax.Array) -> jax.Array:
        """Return the student's logits of the vocabulary, float32 [B, P, V]."""
        return self.student.compute_logits(x_BPD)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
        segment_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the student's last hidden states [B, L, D], and the first of each row [B, D].

        The student has no pooler.
        """
        x_BLD = self.student(token_ids, attention_mask, train, segment_ids)
        return x_BLD, x_BLD[:, 0]


def compute_cosine(x_D: jax.Array, y_D: jax.Array) -> jax.Array:
    """Return the cosine of the angle between vectors [..., D], float32 [...]."""
    x_D, y_D = x_D.astype(jnp.float32), y_D.astype(jnp.float32)
    lengths = jnp.sqrt(jnp.square(x_D).sum(-1) * jnp.square(y_D).sum(-1))
    return (x_D * y_D).sum(-1) / jnp.maximum(lengths, 1e-6)
