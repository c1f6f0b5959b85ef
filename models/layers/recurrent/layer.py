"""A recurrent layer of a stack, which keeps its state from row to row.

B batch   L length   D width, of input and output   C cells
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.cache import CARRY, DecodingStep
from models.layers.linear import ModuleFactory
from models.layers.recurrent.lstm import LstmState, select_rows

CELLS = "cells"  # a collection that only inspection reads; a model runs without it


class RecurrentLayer(nn.Module):
    """x -> lstm(dropout(x)): dropout between the layers, not along the row (Zaremba et al. 2014).

    With a residual, the dropped input is added to the output.

    The state is in the collection `CARRY`. It is read where the collection has it and written where
    the collection is mutable; no gradient flows into it. Where the collection `CELLS` is mutable, c
    of all positions is written to it, [B, L, C].

    lstm: the constructor of an `Lstm`.
    dropout: the constructor of a `Dropout`.
    residual: whether there is a residual.
    """

    lstm: ModuleFactory
    dropout: ModuleFactory
    residual: bool = False

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        is_continued: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the outputs [B, L, D].

        Args:
          x_BLD: the output of the layer before.
          train: whether dropout is applied.
          is_continued: bool [B], False where a row begins with a state of zeros.
          attention_mask: [B, L], 0 on padding, which is not read.
          segment_ids: int32 [B, L], of the texts of a row. The first one continues the state, the
            others begin with zeros.
          step: a decoding step, which needs a state. Its position is not used.

        Raises:
          ValueError: the state has another number of rows or another width, or a decoding step has
            none.
        """
        lstm: Any = self.lstm(name="lstm")
        zeros = lstm.make_state(x_BLD.shape[0])
        state = self.read_state(zeros)
        if state is None and step is not None:
            raise ValueError(
                f"a decoding step needs the state of a prompt in the collection "
                f"{CARRY!r}, which is empty"
            )
        if state is not None and is_continued is not None:
            state = select_rows(is_continued, state, zeros)
        x_BLD = self.dropout(name="dropout")(x_BLD, deterministic=not train)
        states, state = lstm.compute_states(
            x_BLD, state, attention_mask, segment_ids, continues=state is not None
        )
        self.sow(CELLS, "cells", states.cells_BC)
        if self.is_mutable_collection(CARRY):
            if self.is_initializing():
                state = jax.tree.map(jnp.zeros_like, state)
            self.put_variable(CARRY, "cells", state.cells_BC)
            self.put_variable(CARRY, "output", state.output_BH)
        h_BLD = states.output_BH.astype(x_BLD.dtype)
        return x_BLD + h_BLD if self.residual else h_BLD

    def read_state(self, zeros: LstmState) -> LstmState | None:
        """Return the state after the previous row, or None without one.

        zeros: a state of the right shape.

        Raises:
          ValueError: its shape is another one.
        """
        if not self.has_variable(CARRY, "cells"):
            return None
        state = LstmState(
            self.get_variable(CARRY, "cells"),
            self.get_variable(CARRY, "output"),
        )
        for actual, expected in zip(jax.tree.leaves(state), jax.tree.leaves(zeros), strict=True):
            if actual.shape != expected.shape:
                raise ValueError(
                    f"a recurrent state of shape {list(actual.shape)}: it must be "
                    f"{list(expected.shape)}, one row for each of the batch. Begin with zeros "
                    "where the batch size changes"
                )
        return jax.lax.stop_gradient(state)
