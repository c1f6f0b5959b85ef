"""Long short-term memory (Hochreiter and Schmidhuber 1997), with forget gates (Gers et al. 2000).

    i, f, g, o = W x_t + U h_(t-1) + b        three gates and the candidate, each of C numbers
    c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g)
    h_t = sigmoid(o) tanh(c_t)                or P times it, with a projection (Sak et al. 2014)

B batch   L length   D input width   C cells   H output width: C, or the projection's   G = 4 C
"""

from functools import partial
from typing import Self

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.linear import Dense, Initializer
from models.layers.masks import find_segment_starts
from models.layers.ops import PLAIN, Ops

# Uniform between -1 / sqrt(C) and 1 / sqrt(C), as in `torch.nn.LSTM`: of kernels [..., 4 C], and of
# the projection [C, H].
UNIFORM = nn.initializers.variance_scaling(4 / 3, "fan_out", "uniform")
UNIFORM_PROJECTION = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


@flax.struct.dataclass
class LstmState:
    """What a layer keeps of the positions that it has read, float32.

    Attributes:
      cells_BC: c, [B, C].
      output_BH: h, [B, H].
    """

    cells_BC: jax.Array
    output_BH: jax.Array


def select_rows(is_chosen_B: jax.Array, chosen: LstmState, other: LstmState) -> LstmState:
    """Return the states of `chosen` in the rows where `is_chosen_B` is True, else of `other`."""
    return jax.tree.map(partial(jnp.where, is_chosen_B[:, None]), chosen, other)


class Lstm(nn.Module):
    """One layer that reads rows in one direction.

    num_cells: C.
    projection: H, the width of the output; None: C, as the cells.
    clip: cells and projected outputs are clipped to [-clip, clip]; None: they are not.
    forget_bias: is added to the bias of the forget gate.
    reverse: whether rows are read from their ends.
    """

    num_cells: int
    projection: int | None = None
    clip: float | None = None
    forget_bias: float = 0.0
    reverse: bool = False
    kernel_init: Initializer = UNIFORM
    projection_init: Initializer = UNIFORM_PROJECTION
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the linear maps of the input, of the previous output, and of the projection."""
        linear = partial(Dense, kernel_init=self.kernel_init, ops=self.ops)
        self.input = linear(4 * self.num_cells)
        self.recurrent = linear(4 * self.num_cells, use_bias=False)
        if self.projection is not None:
            self.project = Dense(
                self.projection, use_bias=False, kernel_init=self.projection_init, ops=self.ops
            )

    def make_state(self, num_rows: int) -> LstmState:
        """Return the state before any position: zeros."""
        width = self.num_cells if self.projection is None else self.projection
        return LstmState(
            jnp.zeros((num_rows, self.num_cells), jnp.float32),
            jnp.zeros((num_rows, width), jnp.float32),
        )

    def __call__(
        self,
        x_BLD: jax.Array,
        state: LstmState | None = None,
        attention_mask: jax.Array | None = None,
    ) -> tuple[jax.Array, LstmState]:
        """Return the outputs [B, L, H] and the state after the last position that is read.

        Args:
          x_BLD: the inputs.
          state: before the first position that is read; None: zeros.
          attention_mask: [B, L], 0 where a position is padding. Padding leaves the state as it is
            and has the output 0. None: there is none.
        """
        states, last = self.compute_states(x_BLD, state, attention_mask)
        h_BLH = states.output_BH
        if attention_mask is not None:
            h_BLH = jnp.where(attention_mask.astype(bool)[..., None], h_BLH, 0.0)
        return self.ops.constrain(h_BLH.astype(x_BLD.dtype)), last

    def compute_states(
        self,
        x_BLD: jax.Array,
        state: LstmState | None = None,
        attention_mask: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        continues: bool = False,
    ) -> tuple[LstmState, LstmState]:
        """Return the states after each position, leaves [B, L, ...], and after the last one.

        Args:
          x_BLD, state, attention_mask: as in `__call__`.
          segment_ids: int32 [B, L], of the texts of packed rows. The state before each text is
            zeros, and `state` is not used. None: a row is one text.
          continues: whether `state` is used, before the first text of each row.
        """
        if state is None:
            state = self.make_state(x_BLD.shape[0])
        gates_BLG = self.input(x_BLD)
        is_read_BL = None if attention_mask is None else attention_mask.astype(bool)
        is_first_BL = None
        if segment_ids is not None:
            order = slice(None, None, -1 if self.reverse else 1)
            is_first_BL = find_segment_starts(segment_ids[:, order])
            if continues:
                is_first_BL = is_first_BL.at[:, 0].set(False)
            is_first_BL = is_first_BL[:, order]
        read_row = nn.scan(
            Lstm.read_position,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
            reverse=self.reverse,
        )
        last, states = read_row(self, state, (gates_BLG, is_read_BL, is_first_BL))
        return states, last

    def read_position(
        self: Self, state: LstmState, inputs: tuple[jax.Array, jax.Array | None, jax.Array | None]
    ) -> tuple[LstmState, LstmState]:
        """Return the state after a position, twice: the scan carries one and stacks the other.

        Args:
          state: before the position.
          inputs: the input as gates [B, G], bool [B], whether the position is read, and bool [B],
            whether it is the first of a text.
        """
        gates_BG, is_read_B, is_first_B = inputs
        if is_first_B is not None:
            state = select_rows(is_first_B, self.make_state(is_first_B.shape[0]), state)
        new_state = self.step(gates_BG, state)
        if is_read_B is not None:
            new_state = select_rows(is_read_B, new_state, state)
        return new_state, new_state

    def step(self, gates_BG: jax.Array, state: LstmState) -> LstmState:
        """Return the state after a position whose input is mapped to the gates [B, G]."""
        h_BH = state.output_BH.astype(gates_BG.dtype)
        gates_BG = (gates_BG + self.recurrent(h_BH)).astype(jnp.float32)
        i_BC, f_BC, g_BC, o_BC = jnp.split(gates_BG, 4, axis=-1)
        forgotten_BC = jax.nn.sigmoid(f_BC + self.forget_bias) * state.cells_BC
        c_BC = self.limit(forgotten_BC + jax.nn.sigmoid(i_BC) * jnp.tanh(g_BC))
        h_BC = jax.nn.sigmoid(o_BC) * jnp.tanh(c_BC)
        if self.projection is None:
            return LstmState(c_BC, h_BC)
        h_BH = self.project(h_BC.astype(h_BH.dtype)).astype(jnp.float32)
        return LstmState(c_BC, self.limit(h_BH))

    def limit(self, x: jax.Array) -> jax.Array:
        """Return x clipped to [-clip, clip]."""
        return x if self.clip is None else jnp.clip(x, -self.clip, self.clip)
