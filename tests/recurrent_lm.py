"""A small recurrent language model (Elman 1990; Mikolov et al. 2010), which keeps its hidden state
between steps: for tests of that state.

It is not a family of the program. `register` makes it known to this process; `python -m
tests.recurrent_lm VERB ...` is the program with it.

B batch   L length   D width   V vocabulary
"""

import dataclasses
import sys
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.base import ModelConfig
from models.layers.dropout import Dropout
from models.layers.linear import Dense, Embed
from models.layers.model import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElmanConfig(ModelConfig):
    """One hidden layer."""

    module: ClassVar[str] = "elman:Elman"
    vocab: int = 256
    width: int = 16

    @property
    def keeps_state(self) -> bool:
        return True


class Elman(Model):
    """token_ids: int32 [B, L] -> float32 logits [B, L, V] of the word after each. The hidden state
    of each row is kept.
    """

    carried = ("memory",)
    config: ElmanConfig

    def setup(self):
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, nn.initializers.normal(0.5))
        self.read = Dense(c.width, kernel_init=nn.initializers.normal(0.3), ops=self.ops)
        self.hidden = Dense(
            c.width, use_bias=False, kernel_init=nn.initializers.normal(0.3), ops=self.ops
        )
        self.drop = Dropout(c.dropout, ops=self.ops)

    def __call__(self, token_ids, is_continued=None, train=False):
        return self.compute_logits(self.compute_states(token_ids, is_continued, train))

    @nn.compact
    def compute_states(self, token_ids, is_continued=None, train=False):
        """Return the hidden state after each token: h_t = tanh(W x_t + U h_(t-1) + b)."""
        shape = token_ids.shape[0], self.config.width
        memory = self.variable("memory", "state", jnp.zeros, shape, jnp.float32)
        h_BD = memory.value
        if is_continued is not None:
            h_BD = jnp.where(is_continued[:, None], h_BD, 0.0)
        x_BLD = self.read(self.drop(self.token_embedding(token_ids), deterministic=not train))
        h_BD, rows = h_BD.astype(x_BLD.dtype), []
        for t in range(token_ids.shape[1]):
            h_BD = jnp.tanh(x_BLD[:, t] + self.hidden(h_BD))
            rows.append(h_BD)
        if not self.is_initializing():
            memory.value = h_BD.astype(jnp.float32)
        return self.ops.constrain(jnp.stack(rows, axis=1))

    def compute_logits(self, h_BLD):
        table_VD = self.token_embedding.embedding.astype(h_BLD.dtype)
        return jax.lax.dot_general(
            h_BLD, table_VD, (((2,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )


ROWS = (  # of pretrain.mesh.sharding.PARAMETERS
    (r"read/kernel", ("embed", None)),
    (r"read/bias", (None,)),
    (r"hidden/kernel", ("embed", None)),
)


def register_model():
    """Register the model with the configurations, `models.build` and the sharding table."""
    from pretrain import config
    from pretrain.mesh import sharding

    sys.modules["models.elman"] = sys.modules[__name__]
    config.SECTION_CLASSES = {**config.SECTION_CLASSES, ElmanConfig.__name__: ElmanConfig}
    config.Run.__annotations__["model"] |= ElmanConfig
    if ROWS[0] not in sharding.PARAMETER_DIMENSIONS:
        sharding.PARAMETER_DIMENSIONS = (*sharding.PARAMETER_DIMENSIONS, *ROWS)


if __name__ == "__main__":
    from pretrain.__main__ import main
    from tests import recurrent_lm  # not __main__, whose classes would be others

    recurrent_lm.register_model()
    sys.exit(main(sys.argv[1:]))
