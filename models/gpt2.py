"""GPT-2 (Radford et al. 2019): a larger GPT that reads the web, with each norm moved in front of its part and one behind them all.

What is added to the residual begins smaller the deeper the model is, as it adds up (section 2.3).
"""

import math

import flax.linen as nn

from models.gpt import Embeddings, Gpt, make_layer
from models.layers.norms import LayerNorm
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def make_scaled_layer(config, ops):
    """Return the constructor of a layer, whose 2 x depth residual kernels begin smaller by the root of their number."""
    return make_layer(
        config,
        PreNormLayer,
        ops,
        residual_init=nn.initializers.normal(0.02 / math.sqrt(2 * config.depth)),
    )


class Gpt2(Gpt):
    """token_ids: int32 [B, L] -> float32 logits [B, L, V] of the word behind each, as in `Gpt`."""

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c, self.ops)
        self.decoder = Stack(
            make_scaled_layer(c, self.ops), c.depth, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.norm = LayerNorm(c.epsilon, self.ops)

    def run_layers(self, token_ids, train, step, masked_positions):
        """Return the normed last states at all positions [B, L, D], as in `Gpt`."""
        return self.norm(super().run_layers(token_ids, train, step, masked_positions))
