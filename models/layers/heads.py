"""What reads the last states: heads that more than one paper has.

B batch   P positions   D width   E width of the words' vectors   V vocabulary
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from models.layers.linear import Dense
from models.layers.mlp import gelu
from models.layers.norms import LayerNorm
from models.layers.products import shift


class WordHead(nn.Module):
    """A score for every word, by its similarity to the word's embedding (Devlin et al. 2018, section 3.1, task 1; appendix A.2)."""

    epsilon: float
    act: Callable = gelu

    @nn.compact
    def __call__(self, x_BPD, words):
        """words: the `Embed` [V, E] that the model read. Returns float32 [B, P, V]."""
        h_BPE = self.act(Dense(words.width, name="transform")(x_BPD))
        h_BPE = LayerNorm(self.epsilon, name="norm")(h_BPE)
        return shift(words.attend(h_BPE), self.param("bias", nn.initializers.zeros, (words.size,)).astype(jnp.float32))
