"""LeNet-5 (LeCun et al. 1998, section II.B): convolutions and sub-samplings in turn.

    layer   maps          trainable parameters, for 32 x 32 pixels of one channel
    C1      6 of 28 x 28     156    convolution, 5 x 5
    S2      6 of 14 x 14      12    sums of 2 x 2 values, a coefficient and a bias for each map
    C3     16 of 10 x 10   1,516    convolution, 5 x 5, of the maps in `CONNECTIONS`
    S4     16 of  5 x 5       32    as S2
    C5    120             48,120    all of S4
    F6     84             10,164
    output, one a class        0    the distance between F6's state and the code of the class

Their sum is the paper's 60,000. The code of a class is 84 numbers, -1 or 1, which are drawn and not
trained. The paper draws its ten codes by hand, as pictures of digits, and names random codes as
another choice. The size of an image changes C5 alone.

The loss is the cross entropy of the negative distances: equation 9 of the paper without its
constant for images of no class. Three things are not the paper's. The distances are divided by the
root of 84, without which one step of Adam changes them too much. Weights are drawn with a variance
of 1 / n for n inputs, because with the weights of appendix A the last layers' states are about
0. The run chooses the optimizer; the paper's is a stochastic Levenberg-Marquardt method.

B batch   H W height and width   M maps   F pairs of a map that is read and one that is written
K classes   D width
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from models.config.lenet import LenetConfig
from models.layers.images.pixels import normalize_pixels
from models.layers.linear import FAN_IN, Dense
from models.layers.model import Model
from models.layers.ops import PLAIN, Ops

WINDOW = 5  # height and width of a filter
# Table I: the maps of S2 that each map of C3 reads.
CONNECTIONS = (
    *(tuple((first + i) % 6 for i in range(3)) for first in range(6)),
    *(tuple((first + i) % 6 for i in range(4)) for first in range(6)),
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)),
)


def squash(x: jax.Array) -> jax.Array:
    """Return A tanh(S x), with A and S of appendix A: 1 and -1 are mapped to themselves."""
    return 1.7159 * jnp.tanh(x * (2 / 3))


def gather_windows(x_BHWM: jax.Array) -> jax.Array:
    """Return the windows of `WINDOW` x `WINDOW` in a map, [B, H - 4, W - 4, 5, 5, M]."""
    _, H, W, _ = x_BHWM.shape
    rows, columns = H - WINDOW + 1, W - WINDOW + 1
    shifted = [
        jnp.stack([x_BHWM[:, i : i + rows, j : j + columns] for j in range(WINDOW)], axis=3)
        for i in range(WINDOW)
    ]
    return jnp.stack(shifted, axis=3)


class FeatureMaps(nn.Module):
    """C1, C3: maps that are sums of filters over the maps that they read.

    connections: of each new map, the numbers of the maps that it reads.
    """

    connections: tuple[tuple[int, ...], ...]
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BHWM: jax.Array) -> jax.Array:
        """Return the new maps [B, H - 4, W - 4, M]."""
        read_F = np.concatenate(self.connections)
        counts_M = [len(maps) for maps in self.connections]
        written_F = np.repeat(np.arange(len(counts_M)), counts_M)
        inputs_F = np.repeat(counts_M, counts_M) * WINDOW**2

        def init_filters(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.normal(key, shape) / np.sqrt(inputs_F, dtype=np.float32)

        filters = self.param("filters", init_filters, (WINDOW, WINDOW, len(read_F)))
        bias_M = self.param("bias", nn.initializers.zeros, (len(counts_M),))
        zeros = jnp.zeros((WINDOW, WINDOW, x_BHWM.shape[-1], len(counts_M)), filters.dtype)
        kernel = zeros.at[:, :, read_F, written_F].set(filters)
        y_BHWM = self.ops.linear(gather_windows(x_BHWM.astype(kernel.dtype)), kernel, 3)
        return self.ops.add_bias(y_BHWM, bias_M)


class Subsampling(nn.Module):
    """S2, S4: the sum of 2 x 2 values of a map, times a coefficient, and a bias."""

    @nn.compact
    def __call__(self, x_BHWM: jax.Array) -> jax.Array:
        """Return maps of half the height and width, [B, H / 2, W / 2, M]."""
        B, H, W, M = x_BHWM.shape
        coefficient_M = self.param("coefficient", nn.initializers.normal(0.5), (M,))
        bias_M = self.param("bias", nn.initializers.zeros, (M,))
        sums_BHWM = x_BHWM.reshape(B, H // 2, 2, W // 2, 2, M).sum(axis=(2, 4))
        return sums_BHWM * coefficient_M + bias_M


class CodeDistances(nn.Module):
    """The output layer: minus the squared distance between a state x and the code w of a class.

    It is |x|^2 + |w|^2 - 2 x w, of which only the last term differs between classes, and is the
    result. It is divided by the root of the width. The paper reads a distance as the logarithm of a
    normal distribution's density, whose variance is free.

    classes: K.
    """

    classes: int
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BD: jax.Array) -> jax.Array:
        """Return the logits, float32 [B, K]."""

        def draw_codes(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.rademacher(key, shape, jnp.float32)

        codes_KD = self.param("codes", draw_codes, (self.classes, x_BD.shape[-1]))
        # The states are scaled before the matmul, so that its result is the logit itself. A logit
        # that is scaled after it, and computed twice, could be rounded in two ways, and no class
        # would count as the best.
        return self.ops.linear(x_BD * (2 / math.sqrt(x_BD.shape[-1])), codes_KD.T, 1, jnp.float32)


class Lenet(Model):
    """The layers, with `squash` after each but the last."""

    config: LenetConfig

    def setup(self) -> None:
        """Make the layers."""
        c, ops = self.config, self.ops
        self.c1 = FeatureMaps(6 * (tuple(range(c.channels)),), ops)
        self.s2 = Subsampling()
        self.c3 = FeatureMaps(CONNECTIONS, ops)
        self.s4 = Subsampling()
        self.c5 = Dense(120, num_contracting_dims=3, kernel_init=FAN_IN, ops=ops)
        self.f6 = Dense(84, kernel_init=FAN_IN, ops=ops)
        self.output = CodeDistances(c.classes, ops)

    def __call__(self, pixels: jax.Array, train: bool = False) -> jax.Array:
        """Return the logits of the classes, float32 [B, K].

        Args:
          pixels: uint8 [B, H, W, C].
          train: has no effect, because nothing is dropped.
        """
        return self.compute_states(pixels, train)

    def compute_states(self, pixels: jax.Array, train: bool = False) -> jax.Array:
        """Return the logits of the classes, float32 [B, K], of uint8 images [B, H, W, C]."""
        x = normalize_pixels(pixels, self.config, jnp.float32, self.config.padding)
        for layer in (self.c1, self.s2, self.c3, self.s4, self.c5, self.f6):
            x = squash(layer(x))
        return self.output(x)
