"""GPT-2 (Radford et al. 2019): a larger GPT with pre-norm layers and a final norm.

The kernels that add to the residual stream are initialised smaller the deeper the model is, because
their outputs accumulate (section 2.3).

B batch   L length   P masked positions   D width
"""

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax

from models.config.gpt import GptConfig
from models.gpt import Gpt, GptEmbeddings, make_layer
from models.layers.cache import DecodingStep
from models.layers.norms import LayerNorm
from models.layers.ops import Ops
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def make_scaled_layer(config: GptConfig, ops: Ops) -> partial[Any]:
    """Return the constructor of a pre-norm layer with scaled residual kernels.

    The 2 * depth residual kernels are initialised smaller by the square root of their number
    (section 2.3).
    """
    return make_layer(
        config,
        PreNormLayer,
        ops,
        residual_init=nn.initializers.normal(0.02 / math.sqrt(2 * config.depth)),
    )


class Gpt2(Gpt):
    """GPT-2: GPT with pre-norm layers and a final norm."""

    def setup(self) -> None:
        """Make embeddings, layers and final norm."""
        c = self.config
        self.embeddings = GptEmbeddings(c, self.ops)
        self.decoder = Stack(
            make_scaled_layer(c, self.ops), c.depth, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.norm = LayerNorm(c.epsilon, self.ops)

    def run_layers(
        self,
        token_ids: jax.Array,
        train: bool,
        step: DecodingStep | None,
        masked_positions: jax.Array | None,
    ) -> jax.Array:
        """Return the normalised last states at all positions [B, L, D], as in `Gpt`."""
        return self.norm(super().run_layers(token_ids, train, step, masked_positions))
