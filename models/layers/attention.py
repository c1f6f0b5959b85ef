"""Multi-head attention (Vaswani et al. 2017, section 3.2): each position reads a weighted mean of the others.

B batch   L length   M length of what is read   D width   H heads   K head width
"""

from functools import partial

import flax.linen as nn

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Init, Part
from models.layers.ops import PLAIN, Ops


class Attention(nn.Module):
    """Project, attend, project. x reads `memory`, or itself. A paper that changes the softmax passes its own `ops.attend`."""

    num_heads: int
    head_width: int | None = None  # D / H by default
    use_bias: bool = True
    kernel_init: Init = TRUNCATED
    query_init: Init | None = None  # `kernel_init` by default
    out_init: Init | None = None  # `kernel_init` by default
    dropout: Part = partial(Dropout, 0.0)  # on the attention weights
    scale: float | None = None  # of the scores; K ** -0.5 by default
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD, memory_BMD=None, train=False, mask=None, bias=None):
        D = x_BLD.shape[-1]
        if self.head_width is None and D % self.num_heads:
            raise ValueError(f"a width of {D} does not divide into {self.num_heads} heads")
        shape_HK = (self.num_heads, self.head_width or D // self.num_heads)
        project = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init, ops=self.ops)
        query = project(shape_HK, kernel_init=self.query_init or self.kernel_init, name="query")
        out = partial(project, contract=2, kernel_init=self.out_init or self.kernel_init)

        read_BMD = x_BLD if memory_BMD is None else memory_BMD
        q_BLHK = query(x_BLD)
        k_BMHK = project(shape_HK, name="key")(read_BMD)
        v_BMHK = project(shape_HK, name="value")(read_BMD)
        # None where nothing is dropped: some kernels cannot drop.
        drop = self.dropout(deterministic=not train).draw()
        o_BLHK = self.ops.attend(
            q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=self.scale, drop=drop
        )
        return out(D, name="out")(o_BLHK)
