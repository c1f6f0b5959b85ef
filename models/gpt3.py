"""GPT-3 (Brown et al. 2020): GPT-2 with alternating dense and locally banded layers (section 2.1).

The bands follow the Sparse Transformer (Child et al. 2019): each query attends to a window
that ends at its own position.

B batch   L length   D width
"""

from functools import partial

import flax.linen as nn
import jax

from models.config.gpt3 import Gpt3Config
from models.gpt import GptEmbeddings
from models.gpt2 import Gpt2, make_scaled_layer
from models.layers.linear import ModuleFactory
from models.layers.masks import Mask
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack


class DenseThenBanded(nn.Module):
    """A dense and a banded layer (section 2.1), as one layer of a stack that is scanned.

    layer: the constructor of either.
    window: the number of positions that a banded layer attends to.
    """

    layer: ModuleFactory
    window: int
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool, mask: Mask) -> jax.Array:
        """Return activations [B, L, D]; mask: for the dense layer."""
        x = self.layer(name="dense")(x_BLD, train, mask=mask)
        return self.layer(name="banded")(
            self.ops.constrain(x), train, mask=mask.replace(window=self.window)
        )


class Gpt3(Gpt2):
    """GPT-3: GPT-2 with dense and banded layers in turn.

    Raises:
      ValueError: the depth is odd.
    """

    config: Gpt3Config

    def setup(self) -> None:
        """Make embeddings, pairs of layers and final norm."""
        c = self.config
        if c.depth % 2:
            raise ValueError(
                f"a depth of {c.depth} is odd; it must be even, because dense and locally banded "
                "layers alternate (model.depth)"
            )
        pair = partial(DenseThenBanded, make_scaled_layer(c, self.ops), c.window, self.ops)
        self.embeddings = GptEmbeddings(c, self.ops)
        self.decoder = Stack(pair, c.num_pairs, scan=c.scan, remat=c.remat, ops=self.ops)
        self.norm = LayerNorm(c.epsilon, self.ops)
