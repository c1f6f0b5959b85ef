"""GPT-2 (Radford et al. 2019): a larger GPT that reads the web, with each norm moved in front of its part and one behind them all.

What is added to the residual begins smaller the deeper the model is, as it adds up (section 2.3).
"""

import math

import flax.linen as nn

from models.gpt import Embeddings, Gpt, layer_of
from models.layers.norms import LayerNorm
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def layer(config, attend):
    """The constructor of a layer, whose 2 x depth residual kernels begin smaller by the root of their number."""
    return layer_of(
        config,
        PreNormLayer,
        attend,
        residual_init=nn.initializers.normal(0.02 / math.sqrt(2 * config.depth)),
    )


class Gpt2(Gpt):
    """token_ids: int32 [B, L] -> float32 logits [B, L, V] of the word behind each, as in `Gpt`."""

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.decoder = Stack(
            layer(c, self.attend), c.depth, scan=c.scan, remat=c.remat, constrain=self.constrain
        )
        self.norm = LayerNorm(c.epsilon)

    def run_layers(self, token_ids, train, step, masked_positions):
        """Return the normed last states at all positions [B, L, D], as in `Gpt`."""
        return self.norm(super().run_layers(token_ids, train, step, masked_positions))
