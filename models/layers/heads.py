"""What reads the last states: heads that more than one paper has.

B batch   L length   P positions   D width   E width of the words' vectors   V vocabulary   C classes
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from models.layers.linear import Dense, Part
from models.layers.matmul import shift
from models.layers.mlp import gelu
from models.layers.norms import LayerNorm


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

    @nn.compact
    def __call__(self, x_BPD, words):
        """words: the `Embed` [V, E] that the model read. Returns float32 [B, P, V]."""
        h_BPE = self.act(Dense(words.width, name="transform")(x_BPD))
        h_BPE = LayerNorm(self.epsilon, name="norm")(h_BPE)
        return shift(
            words.attend(h_BPE),
            self.param("bias", nn.initializers.zeros, (words.size,)).astype(jnp.float32),
        )


class ClassHead(nn.Module):
    """A score for every class, from the pooled row (Devlin et al. 2018, section 4.1)."""

    classes: int
    dropout: Part

    @nn.compact
    def __call__(self, pooled_BD, train=False):
        """Returns float32 [B, C]."""
        x_BD = self.dropout(name="dropout")(pooled_BD, deterministic=not train)
        return Dense(self.classes, result=jnp.float32, name="out")(x_BD).astype(jnp.float32)


class HiddenClassHead(nn.Module):
    """The same of an encoder without a pooler: a hidden layer, as wide as it, comes first."""

    classes: int
    dropout: Part
    act: Callable

    @nn.compact
    def __call__(self, first_BD, train=False):
        """Returns float32 [B, C]."""
        h_BD = self.act(Dense(first_BD.shape[-1], name="transform")(first_BD))
        return ClassHead(self.classes, self.dropout, name="scores")(h_BD, train)
