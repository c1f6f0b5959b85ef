"""The cells of a recurrent model after each character of a text.

L tokens of a call   T places   C cells of all layers
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from models import build
from models.generation.decoding import unstack_model
from models.layers.cache import CARRY
from models.layers.recurrent.layer import CELLS
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.workdir.trained import Trained

TOKENS_AT_ONCE = 512


class ReadText(NamedTuple):
    """A text that a model has read.

    Attributes:
      end_T: int64, the number of characters that are read at each place.
      cells_TC: float32, tanh of the cells there, the first layer's first.
    """

    text: str
    end_T: np.ndarray
    cells_TC: np.ndarray
    num_cells: int

    def name_cell(self, cell: int) -> str:
        """Return the layer and the number of a cell, both counted from 1."""
        return f"layer {cell // self.num_cells + 1}, cell {cell % self.num_cells + 1}"


def check_is_recurrent(model: Any) -> None:
    """Raise ValueError unless a configuration describes a model with cells."""
    if CARRY not in build(model).collections:
        raise ValueError(
            f"a {type(model).__name__} has no cells, which only a recurrent model has. `features` "
            "has the hidden states of its layers"
        )


def read_text(trained: Trained, text: str) -> ReadText:
    """Return the cells after the characters of a text, which is read as one row.

    A place is the last token of a character or of several: the bytes of one character are one
    place, and a piece of several characters is too.

    Raises:
      ValueError: the text has no token.
    """
    ((ids, spans),) = trained.vocabulary.encode_with_offsets([text])
    if not ids:
        raise ValueError("the text has no token")
    config: Any = trained.run.model  # of an LSTM
    ends = np.array([end for _, end in spans], np.int64)
    is_place = np.append(ends[1:] > ends[:-1], True)
    return ReadText(
        text,
        ends[is_place],
        np.tanh(compute_cells(trained, np.array(ids, np.int32)))[is_place],
        config.width,
    )


def compute_cells(trained: Trained, token_ids: np.ndarray) -> np.ndarray:
    """Return the cells after each token, float32 [L, C]."""
    model, params = unstack_model(build(trained.run.model, **make_local_hooks()), trained.params)

    @jax.jit
    def read_row(state: Any, token_ids: jax.Array) -> tuple[Any, list[jax.Array]]:
        variables = {"params": params, CARRY: state}
        mutable = [CARRY, CELLS]
        _, found = model.apply(variables, token_ids, mutable=mutable, method="compute_states")
        layers = [
            found[CELLS]["decoder"][f"layer_{i}"]["cells"][0] for i in range(model.config.depth)
        ]
        return found[CARRY], layers

    state, rows = {}, []
    for start in range(0, len(token_ids), TOKENS_AT_ONCE):
        part = token_ids[start : start + TOKENS_AT_ONCE]
        padded = np.pad(part, (0, TOKENS_AT_ONCE - len(part)))  # of the last call alone
        state, layers = read_row(state, padded[None])
        row_LC = np.concatenate([np.asarray(layer)[0] for layer in layers], axis=-1)
        rows.append(row_LC[: len(part)])
    return np.concatenate(rows)
