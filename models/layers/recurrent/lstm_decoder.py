"""A decoder of LSTM layers that starts from an encoder's states, with attention or without.

    plain      s_t = LSTM(y_(t-1), s_(t-1)), returned s_t              Sutskever et al. 2014
    Bahdanau   c_t = attend(s_(t-1)), s_t = LSTM([y_(t-1); c_t], s_(t-1)),
               returned maxout(U [s_t; y_(t-1); c_t])                  Bahdanau et al. 2015
    Luong      s_t = LSTM([y_(t-1); a_(t-1)], s_(t-1)), c_t = attend(s_t),
               returned a_t = tanh(U [c_t; s_t])                       Luong et al. 2015

B batch   L target length   M source length   D embedding width   C cells   E width of the encoder's
states: C, or 2 C of both directions   A width of a mapped key   R rows of a decoding step: B, or B
times the beams of a beam search   W = R / B   X width of what the layers read
"""

from functools import partial
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.cache import CARRY, MEMORY, DecodingStep
from models.layers.dropout import Dropout
from models.layers.linear import Dense, Initializer
from models.layers.masks import find_segment_starts
from models.layers.ops import PLAIN, Ops
from models.layers.recurrent.attention_scores import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    average_states,
)
from models.layers.recurrent.lstm import UNIFORM, Lstm, LstmState, select_rows
from models.layers.recurrent.lstm_encoder import Direction, EncodedSource

Score = Literal["additive", "dot", "general", "concat"]


@flax.struct.dataclass
class DecoderState:
    """What a decoder carries from a position to the next.

    Attributes:
      layers: of each layer, leaves [B, C], float32.
      fed_BC: Luong's attentional vector a_t; zeros without input feeding.
    """

    layers: tuple[LstmState, ...]
    fed_BC: jax.Array


class LstmDecoder(nn.Module):
    """Layers of LSTMs, with attention to the source or without.

    num_cells: C. depth: the number of layers, as in the encoder.
    direction: the encoder's.
    score: additive for Bahdanau's decoder; dot, general or concat for Luong's; None: no attention.
    hidden: A, of the additive and the concat score.
    input_feeding: whether Luong's decoder reads a_(t-1).
    dropout: rate, between layers.
    remat: whether the backward pass recomputes each position.
    """

    num_cells: int
    depth: int
    direction: Direction
    score: Score | None
    hidden: int
    input_feeding: bool = True
    dropout: float = 0.0
    remat: bool = False
    kernel_init: Initializer = UNIFORM
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the layers, the attention, and the output layer that reads its context.

        Raises:
          ValueError: the width is odd, for a maxout of half as many units.
        """
        C, ops, init = self.num_cells, self.ops, self.kernel_init
        linear = partial(Dense, kernel_init=init, ops=ops)
        self.layer = [Lstm(C, kernel_init=init, ops=ops) for _ in range(self.depth)]
        self.drop = Dropout(self.dropout, ops=ops)
        if self.direction == "bidirectional":
            self.start = [linear(C) for _ in range(self.depth)]
        if self.score in ("additive", "concat"):
            self.align = AdditiveScore(self.hidden, init, ops)
        elif self.score is not None:
            self.align = DotScore() if self.score == "dot" else GeneralScore(C, init, ops)
        if self.score == "additive" and C % 2:
            raise ValueError(
                f"a width of {C} is odd; it must be even, because the maxout layer before "
                "the logits has half as many units (model.width)"
            )
        if self.score is not None:
            self.out = linear(C)

    def __call__(
        self,
        source: EncodedSource,
        source_ids_BM: jax.Array,
        x_BLD: jax.Array,
        segment_ids: jax.Array,
        train: bool,
        step: DecodingStep | None,
    ) -> jax.Array:
        """Return what predicts the tokens, [B, L, C]; half as wide after a maxout.

        Args:
          source: the encoded source.
          source_ids_BM: int32, the segment of each source token; -1 for padding.
          x_BLD: embeddings of what is read; [R, 1, D] with `step`.
          segment_ids: int32 [B, L], or [R, 1].
          train: whether dropout is applied.
          step: a decoding step, whose token follows the tokens of the carried state.

        Raises:
          ValueError: a decoding step without the state of a prompt.
        """
        keys_BMA = self.map_keys(source.states_BME)

        def read_position(decoder: LstmDecoder, state: DecoderState, inputs: Any) -> Any:
            return decoder.read_position(state, inputs, source, source_ids_BM, keys_BMA, train)

        if step is None:
            starts = self.make_starts(source, source_ids_BM, segment_ids)
            is_first_BL = find_segment_starts(segment_ids)
            fed_BC = jnp.zeros((x_BLD.shape[0], self.num_cells), x_BLD.dtype)
            zeros = tuple(lstm.make_state(x_BLD.shape[0]) for lstm in self.layer)
            read_row = nn.scan(
                nn.remat(read_position, prevent_cse=False) if self.remat else read_position,
                variable_broadcast="params",
                split_rngs={"params": False, "dropout": True},
                in_axes=1,
                out_axes=1,
            )
            inputs = x_BLD, segment_ids, is_first_BL, starts
            state, (out_BLC, *observed) = read_row(self, DecoderState(zeros, fed_BC), inputs)
        else:
            if not self.has_variable(CARRY, "state"):
                raise ValueError(
                    f"a decoding step needs the state after a prompt in the collection {CARRY!r}, "
                    "which is empty"
                )
            inputs = x_BLD[:, 0], segment_ids[:, 0], None, None
            state = self.get_variable(CARRY, "state")
            state, outputs = read_position(self, state, inputs)
            out_BLC, *observed = jax.tree.map(lambda x: x[:, None], outputs)
        if self.is_mutable_collection(CARRY) and not self.is_initializing():
            self.put_variable(CARRY, "state", state)
        hidden, *weights_BLM = observed
        self.sow("intermediates", "hidden_states", (x_BLD, *hidden))
        for weights in weights_BLM:
            self.sow("intermediates", "attention_weights", {"cross": (weights[:, None],)})
        return out_BLC

    def map_keys(self, states_BME: jax.Array) -> jax.Array | None:
        """Return what the score reads of the source, computed once for all decoding steps."""
        if self.score is None:
            return None
        if self.has_variable(MEMORY, "keys"):
            return self.get_variable(MEMORY, "keys")
        keys_BMA = self.align.map_keys(states_BME)
        if self.is_mutable_collection(MEMORY) and not self.is_initializing():
            self.put_variable(MEMORY, "keys", keys_BMA)
        return keys_BMA

    def make_starts(
        self, source: EncodedSource, source_ids_BM: jax.Array, segment_ids_BL: jax.Array
    ) -> tuple[LstmState, ...]:
        """Return the states from which each position's target starts, leaves [B, L, C].

        They are the states of the encoder's layers after the last token that it reads, which is
        the first token of the source where it reads backward. A bidirectional encoder gives
        h = tanh(c), where c is a linear map of the backward output (Bahdanau et al. 2015, appendix
        A.2.2).
        """
        is_own_BLM = segment_ids_BL[..., None] == source_ids_BM[:, None]
        if self.direction == "forward":
            M = source_ids_BM.shape[1]
            position_BL = M - 1 - jnp.argmax(is_own_BLM[..., ::-1], axis=-1)
        else:
            position_BL = jnp.argmax(is_own_BLM, axis=-1)
        starts = jax.tree.map(
            lambda x_BMC: jnp.take_along_axis(x_BMC, position_BL[..., None], axis=1), source.layers
        )
        if self.direction == "bidirectional":
            cells = [start(state.output_BH) for start, state in zip(self.start, starts)]
            starts = tuple(LstmState(c_BLC, jnp.tanh(c_BLC)) for c_BLC in cells)
        return jax.tree.map(lambda x: x.astype(jnp.float32), starts)

    def read_position(
        self,
        state: DecoderState,
        inputs: tuple[jax.Array, jax.Array, jax.Array | None, tuple[LstmState, ...] | None],
        source: EncodedSource,
        source_ids_BM: jax.Array,
        keys_BMA: jax.Array | None,
        train: bool,
    ) -> tuple[DecoderState, tuple[Any, ...]]:
        """Return the state after a position, and (output [R, C], outputs of each layer, weights).

        Args:
          state: before the position.
          inputs: the embeddings [R, D], segments [R], bool [R], whether it is the first position of
            a target, and the states from which that starts.
          source, source_ids_BM: as in `__call__`.
          keys_BMA: what the score reads of the source.
          train: whether dropout is applied.
        """
        x_RD, segment_R, is_first_R, starts = inputs
        if is_first_R is not None:
            assert starts is not None
            layers = tuple(map(partial(select_rows, is_first_R), starts, state.layers))
            fed_RC = jnp.where(is_first_R[:, None], 0, state.fed_BC)
            state = DecoderState(layers, fed_RC)
        is_visible_BWM = segment_R.reshape(source_ids_BM.shape[0], -1, 1) == source_ids_BM[:, None]

        def attend(query_RC: jax.Array) -> tuple[jax.Array, jax.Array]:
            assert keys_BMA is not None
            queries_BWC = query_RC.reshape(*is_visible_BWM.shape[:2], -1).astype(x_RD.dtype)
            scores_BWM = self.align(queries_BWC, keys_BMA)
            averaged = average_states(scores_BWM, is_visible_BWM, source.states_BME)
            context_RE, weights_RM = (x.reshape(x_RD.shape[0], -1) for x in averaged)
            return context_RE, weights_RM

        if self.score is None:
            layers, hidden = self.step_layers(x_RD, state.layers, train)
            return DecoderState(layers, state.fed_BC), (hidden[-1], hidden)
        if self.score == "additive":
            context_RE, weights_RM = attend(state.layers[-1].output_BH)
            x_RX = jnp.concatenate([x_RD, context_RE], axis=-1)
            layers, hidden = self.step_layers(x_RX, state.layers, train)
            out_RC = self.out(jnp.concatenate([hidden[-1], x_RX], axis=-1))
            maxout_RC = jnp.maximum(*jnp.split(out_RC, 2, axis=-1))
            return DecoderState(layers, state.fed_BC), (maxout_RC, hidden, weights_RM)
        x_RX = jnp.concatenate([x_RD, state.fed_BC], axis=-1) if self.input_feeding else x_RD
        layers, hidden = self.step_layers(x_RX, state.layers, train)
        context_RE, weights_RM = attend(hidden[-1])
        out_RC = jnp.tanh(self.out(jnp.concatenate([context_RE, hidden[-1]], axis=-1)))
        fed_RC = out_RC if self.input_feeding else state.fed_BC
        return DecoderState(layers, fed_RC), (out_RC, hidden, weights_RM)

    def step_layers(
        self, x_RX: jax.Array, states: tuple[LstmState, ...], train: bool
    ) -> tuple[tuple[LstmState, ...], tuple[jax.Array, ...]]:
        """Return the state of each layer after a position of input x, and their outputs [R, C]."""
        new_states, hidden = [], []
        for i, (lstm, state) in enumerate(zip(self.layer, states)):
            if i:
                x_RX = self.drop(x_RX, deterministic=not train)
            new_states.append(lstm.step(lstm.input(x_RX), state))
            x_RX = new_states[-1].output_BH.astype(x_RX.dtype)
            hidden.append(x_RX)
        return tuple(new_states), tuple(hidden)
