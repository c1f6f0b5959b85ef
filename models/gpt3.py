"""GPT-3 (Brown et al. 2020): GPT-2, dense and locally banded in turn, so large that a few examples in its text show it a task.

The bands are those of the Sparse Transformer (Child et al. 2019): each position reads a window that ends with itself.

B batch   L length   D width
"""

from functools import partial

import flax.linen as nn

from models.config.gpt3 import Gpt3Config
from models.gpt import Embeddings
from models.gpt2 import Gpt2, make_scaled_layer
from models.layers.linear import Part
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack


class DenseThenBanded(nn.Module):
    """Two layers (section 2.1): one body for a stack to scan over, so that the two kinds are compiled once each."""

    layer: Part
    window: int
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD, train, mask):
        x = self.layer(name="dense")(x_BLD, train, mask=mask)
        return self.layer(name="banded")(
            self.ops.constrain(x), train, mask=mask.replace(window=self.window)
        )


class Gpt3(Gpt2):
    """token_ids: int32 [B, L] -> float32 logits [B, L, V] of the word behind each, as in `Gpt`. Raises ValueError for an odd depth."""

    config: Gpt3Config

    def setup(self):
        c = self.config
        if c.depth % 2:
            raise ValueError(
                f"a depth of {c.depth} is odd; dense and locally banded layers take turns: it must be even (model.depth)"
            )
        pair = partial(DenseThenBanded, make_scaled_layer(c, self.ops), c.window, self.ops)
        self.embeddings = Embeddings(c, self.ops)
        self.decoder = Stack(pair, c.depth // 2, scan=c.scan, remat=c.remat, ops=self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops)
