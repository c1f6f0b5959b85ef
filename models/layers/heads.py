"""What reads the last states: heads that more than one paper has.

B batch   L length   P positions   D width   E width of the words' vectors   V vocabulary   C classes
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from models.layers.linear import Dense, Part
from models.layers.mlp import gelu
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops


def take_positions(x_BLD, masked_positions):
    """Return the states at the positions [B, P], or all of them where there are none: [B, P, D].

    Before the vocabulary, which is the costliest product of a small model.
    """
    if masked_positions is None:
        return x_BLD
    return jnp.take_along_axis(x_BLD, masked_positions[..., None], axis=1)


class MaskedLMHead(nn.Module):
    """A score for every word, by its similarity to the word's embedding (Devlin et al. 2018, section 3.1, task 1; appendix A.2)."""

    epsilon: float
    act: Callable = gelu
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BPD, words):
        """words: the `Embed` [V, E] that the model read. Returns float32 [B, P, V]."""
        h_BPE = Dense(words.width, ops=self.ops, name="transform")(x_BPD)
        h_BPE = self.ops.recompute(self.act)(h_BPE)
        h_BPE = LayerNorm(self.epsilon, ops=self.ops, name="norm")(h_BPE)
        scores_BPV = words.attend(h_BPE)
        bias_V = self.param("bias", nn.initializers.zeros, (words.size,))
        return self.ops.add_bias(scores_BPV, bias_V.astype(jnp.float32))


class ClassHead(nn.Module):
    """A score for every class, from the pooled row (Devlin et al. 2018, section 4.1)."""

    classes: int
    dropout: Part
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, pooled_BD, train=False):
        """Returns float32 [B, C]."""
        x_BD = self.dropout(name="dropout")(pooled_BD, deterministic=not train)
        out = Dense(self.classes, result=jnp.float32, ops=self.ops, name="out")
        return out(x_BD).astype(jnp.float32)


class HiddenClassHead(nn.Module):
    """The same of an encoder without a pooler: a hidden layer, as wide as it, comes first."""

    classes: int
    dropout: Part
    act: Callable
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, first_BD, train=False):
        """Returns float32 [B, C]."""
        h_BD = Dense(first_BD.shape[-1], ops=self.ops, name="transform")(first_BD)
        h_BD = self.ops.recompute(self.act)(h_BD)
        return ClassHead(self.classes, self.dropout, self.ops, name="scores")(h_BD, train)
