"""GPT-3 (Brown et al. 2020): GPT-2, dense and locally banded in turn, so large that a few examples in its text show it a task.

The bands are those of the Sparse Transformer (Child et al. 2019): each position reads a window that ends with itself.

B batch   L length   D width
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn

from models.config.gpt3 import Gpt3Config
from models.gpt import Embeddings
from models.gpt2 import Gpt2, layer
from models.layers.linear import Part
from models.layers.norms import LayerNorm
from models.layers.stack import Stack, unchanged


class DenseThenBanded(nn.Module):
    """Two layers (section 2.1): one body for a stack to scan over, so that the two kinds are compiled once each."""

    layer: Part
    window: int
    constrain: Callable = unchanged

    @nn.compact
    def __call__(self, x_BLD, train, mask):
        x = self.layer(name="dense")(x_BLD, train, mask=mask)
        return self.layer(name="banded")(
            self.constrain(x), train, mask=mask.replace(window=self.window)
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
        pair = partial(DenseThenBanded, layer(c, self.attend), c.window, self.constrain)
        self.embeddings = Embeddings(c)
        self.decoder = Stack(
            pair, c.depth // 2, scan=c.scan, remat=c.remat, constrain=self.constrain
        )
        self.norm = LayerNorm(c.epsilon)
