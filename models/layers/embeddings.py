"""Input embeddings of BERT and the encoders derived from it, and sinusoids of positions.

B batch   L length   D width   T token types   P positions   I = D / 2
"""

from functools import partial

import flax.linen as nn
import jax
import numpy as np

from models.layers.dropout import Dropout
from models.layers.linear import Embed, ModuleFactory
from models.layers.masks import make_position_ids
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops


class Embeddings(nn.Module):
    """norm(token + position + token type) (Devlin et al. 2018, section 3, figure 2).

    vocab: rows of the table of token embeddings.
    width: D.
    length: the length of the longest row.
    num_token_types: the number of token types; 0 for an encoder without them.
    epsilon: added to the variance in the norm.
    first_position: the row of the position table that belongs to the first token of a row.
    """

    vocab: int
    width: int
    length: int
    num_token_types: int
    epsilon: float
    dropout: ModuleFactory = partial(Dropout, 0.0)
    first_position: int = 0
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the tables and the norm."""
        self.token_embedding = Embed(self.vocab, self.width, ops=self.ops)
        self.position_embedding = Embed(self.first_position + self.length, self.width, ops=self.ops)
        if self.num_token_types:
            self.token_type_embedding = Embed(self.num_token_types, self.width)
        self.norm = LayerNorm(self.epsilon, self.ops)
        self.drop = self.dropout()

    def __call__(
        self,
        token_ids: jax.Array,
        token_type_ids: jax.Array,
        train: bool,
        segment_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Return the embeddings [B, L, D].

        Args:
          token_ids: int32 [B, L].
          token_type_ids: int32 [B, L]; not read without token types.
          train: whether dropout is applied.
          segment_ids: int32 [B, L], the packed text that a token belongs to; positions count from
            the start of each text. None: one text a row.

        Raises:
          ValueError: L is above `length`.
        """
        L = token_ids.shape[1]
        if L > self.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {self.length} positions "
                "of the model (model.length)"
            )
        x_BLD = self.token_embedding(token_ids)
        if segment_ids is None:
            x_BLD += self.position_embedding.embedding[
                self.first_position : self.first_position + L
            ]
        else:
            x_BLD += self.position_embedding(self.first_position + make_position_ids(segment_ids))
        if self.num_token_types:
            # A matmul with one-hot rows: the gradient of a gather would add B * L rows, one by
            # one, into T rows.
            table_TD = self.token_type_embedding.embedding
            x_BLD += (
                jax.nn.one_hot(token_type_ids, self.num_token_types, dtype=table_TD.dtype)
                @ table_TD
            )
        return self.drop(self.norm(x_BLD), deterministic=not train)


def make_sinusoids(positions_P: np.ndarray, width: int) -> np.ndarray:
    """Return the encodings of positions, float32 [P, D] (Vaswani et al. 2017, section 3.5).

    Column i has sin(p / 10000^(2i/D)) and column D/2 + i its cosine: the paper's columns 2i and
    2i + 1, in the order of its code.

    Args:
      positions_P: positions, or signed distances.
      width: D.

    Raises:
      ValueError: the width is odd.
    """
    if width % 2:
        raise ValueError(
            f"a width of {width} is odd; it must be even, because sines and cosines take half of "
            "it each (model.width)"
        )
    rate_I = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angle_PI = positions_P[:, None] * rate_I
    return np.concatenate([np.sin(angle_PI), np.cos(angle_PI)], axis=1).astype(np.float32)
