"""What BERT and its heirs read: a word, its position and its segment, as one vector.

B batch   L length   D width   S segments
"""

from functools import partial

import flax.linen as nn
import jax

from models.layers.dropout import Dropout
from models.layers.linear import Embed, Part
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.packing import places


class Embeddings(nn.Module):
    """word + position + segment, normalised (Devlin et al. 2018, section 3, figure 2).

    length: the longest row. types: kinds of segments, or 0 where they are not told apart. first: the row of the table of positions that a row's first token reads.
    segment_ids: the text that a token belongs to, where a row has several side by side: positions begin anew with each.
    """

    vocab: int
    width: int
    length: int
    types: int
    epsilon: float
    dropout: Part = partial(Dropout, 0.0)
    first: int = 0
    ops: Ops = PLAIN

    def setup(self):
        self.token_embedding = Embed(self.vocab, self.width, ops=self.ops)
        self.position_embedding = Embed(self.first + self.length, self.width)
        if self.types:
            self.token_type_embedding = Embed(self.types, self.width)
        self.norm = LayerNorm(self.epsilon, self.ops)
        self.drop = self.dropout()

    def __call__(self, token_ids, token_type_ids, train, segment_ids=None):
        L = token_ids.shape[1]
        if L > self.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {self.length} positions of the model (model.length)"
            )
        x_BLD = self.token_embedding(token_ids)
        if segment_ids is None:
            x_BLD += self.position_embedding.embedding[self.first : self.first + L]
        else:
            x_BLD += self.position_embedding(self.first + places(segment_ids))
        if self.types:
            # A product with one-hot rows: the gradient of a gather would add B * L rows up in S places, one by one.
            table_SD = self.token_type_embedding.embedding
            x_BLD += jax.nn.one_hot(token_type_ids, self.types, dtype=table_SD.dtype) @ table_SD
        return self.drop(self.norm(x_BLD), deterministic=not train)
