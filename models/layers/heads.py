"""Output heads that several papers share.

B batch   L length   P positions   D width   E embedding width   V vocabulary   C classes
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.linear import Dense, Embed, ModuleFactory
from models.layers.mlp import gelu
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops


def gather_positions(
    x_BLD: jax.Array, masked_positions: jax.Array | None, ops: Ops = PLAIN
) -> jax.Array:
    """Return the states at the positions [B, P], shape [B, P, D]; all states for None.

    Called before the vocabulary's matmul, which is the most expensive of a small model.
    """
    if masked_positions is None:
        return x_BLD
    return ops.take_positions(x_BLD, masked_positions)


def gather_last(x_BLD: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """Return the state of each row's last token [B, D].

    attention_mask: bool [B, L], False on padding, which follows all tokens.
    """
    last_B = jnp.maximum(attention_mask.sum(axis=1, dtype=jnp.int32) - 1, 0)
    return jnp.take_along_axis(x_BLD, last_B[:, None, None], axis=1)[:, 0]


def average_tokens(x_BLD: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """Return the mean state of each row's tokens [B, D], summed in float32.

    attention_mask: bool [B, L], False on padding.
    """
    weights_BL1 = attention_mask[..., None].astype(jnp.float32)
    sums_BD = (x_BLD.astype(jnp.float32) * weights_BL1).sum(axis=1)
    return (sums_BD / jnp.maximum(weights_BL1.sum(axis=1), 1)).astype(x_BLD.dtype)


def compute_divergence(
    logits_C: jax.Array, teacher_logits_C: jax.Array, temperature: float
) -> jax.Array:
    """Return T^2 KL(softmax(teacher logits / T) || softmax(logits / T)), in nats, float32 [...].

    Hinton et al. 2015, section 2: the distance between the softened distributions of a student and
    its teacher. The factor makes the size of its gradient independent of T.

    Args:
      logits_C: of the student, float32 [..., C].
      teacher_logits_C: float32 [..., C].
      temperature: T.
    """
    student_C, teacher_C = (
        jax.nn.log_softmax(scores_C / temperature) for scores_C in (logits_C, teacher_logits_C)
    )
    return temperature**2 * (jnp.exp(teacher_C) * (teacher_C - student_C)).sum(axis=-1)


class MaskedLMHead(nn.Module):
    """Logits of the vocabulary, from the similarity of a transformed state to each embedding.

    Devlin et al. 2018, section 3.1, task 1. The transform and the bias are as in the paper's code.
    """

    epsilon: float
    activation: Callable[[jax.Array], jax.Array] = gelu
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BPD: jax.Array, token_embedding: Embed) -> jax.Array:
        """Return logits, float32 [B, P, V]; token_embedding: the model's input table [V, E]."""
        hidden_BPE = Dense(token_embedding.width, ops=self.ops, name="transform")(x_BPD)
        hidden_BPE = self.ops.recompute(self.activation)(hidden_BPE)
        hidden_BPE = LayerNorm(self.epsilon, ops=self.ops, name="norm")(hidden_BPE)
        logits_BPV = token_embedding.attend(hidden_BPE)
        bias_V = self.param("bias", nn.initializers.zeros, (token_embedding.size,))
        return self.ops.add_bias(logits_BPV, bias_V.astype(jnp.float32))


class StateTransform(nn.Module):
    """norm(activation(x W)): what heads of ModernBERT read of a state, as in the authors' code."""

    epsilon: float
    activation: Callable[[jax.Array], jax.Array] = gelu
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return states [B, L, D]."""
        y_BLD = Dense(x_BLD.shape[-1], use_bias=False, ops=self.ops, name="transform")(x_BLD)
        y_BLD = self.ops.recompute(self.activation)(y_BLD)
        return LayerNorm(self.epsilon, self.ops, use_bias=False, name="norm")(y_BLD)


class TiedHead(nn.Module):
    """Logits of the vocabulary: the similarity of a state to each embedding, and a bias."""

    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BPD: jax.Array, token_embedding: Embed) -> jax.Array:
        """Return logits, float32 [B, P, V]; token_embedding: the model's input table [V, D]."""
        logits_BPV = token_embedding.attend(x_BPD)
        bias_V = self.param("bias", nn.initializers.zeros, (token_embedding.size,))
        return self.ops.add_bias(logits_BPV, bias_V.astype(jnp.float32))


class ClassHead(nn.Module):
    """Logits of the classes: one linear map of the state (Devlin et al. 2018, section 4.1)."""

    num_classes: int
    dropout: ModuleFactory
    ops: Ops = PLAIN
    use_bias: bool = True

    @nn.compact
    def __call__(self, x_BD: jax.Array, train: bool = False) -> jax.Array:
        """Return logits, float32 [B, C], of states [B, D]; [..., C] of states [..., D]."""
        x_BD = self.dropout(name="dropout")(x_BD, deterministic=not train)
        out = Dense(
            self.num_classes,
            use_bias=self.use_bias,
            out_dtype=jnp.float32,
            ops=self.ops,
            name="out",
        )
        return out(x_BD).astype(jnp.float32)


class HiddenClassHead(nn.Module):
    """Logits of the classes of an encoder without a pooler: a hidden layer [D, D] comes first."""

    num_classes: int
    dropout: ModuleFactory
    activation: Callable[[jax.Array], jax.Array]
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self, x_BD: jax.Array, train: bool = False, attention_mask: jax.Array | None = None
    ) -> jax.Array:
        """Return logits, float32 [B, C], of the states [B, D] of rows.

        attention_mask: bool [B, L] for the states [B, L, D] of all tokens, over which the hidden
          layer is averaged.
        """
        hidden_BD = Dense(x_BD.shape[-1], ops=self.ops, name="transform")(x_BD)
        hidden_BD = self.ops.recompute(self.activation)(hidden_BD)
        if attention_mask is not None:
            hidden_BD = average_tokens(hidden_BD, attention_mask)
        return ClassHead(self.num_classes, self.dropout, self.ops, name="scores")(hidden_BD, train)
