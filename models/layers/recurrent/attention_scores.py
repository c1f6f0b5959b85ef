"""Attention of a recurrent decoder: a score of its state against each state of an encoder.

    dot        q . k                          Luong et al. 2015, equation 8
    general    q . W k
    additive   v . tanh(W q + U k)            Bahdanau et al. 2015, appendix A.1.2

Luong's concat, v . tanh(W [q; k]), is the additive score with W and U side by side in one matrix.

B rows of an encoder   W queries of each   M source length   C query width   E key width
A width of a mapped key: C, or the hidden units of the additive score
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.linear import FAN_IN, Dense, Initializer
from models.layers.ops import PLAIN, Ops


class DotScore(nn.Module):
    """q . k, of queries and keys of one width."""

    def map_keys(self, keys_BME: jax.Array) -> jax.Array:
        """Return what scoring reads of each key, [B, M, A]: the keys themselves."""
        return keys_BME

    def __call__(self, queries_BWC: jax.Array, mapped_BMA: jax.Array) -> jax.Array:
        """Return the scores, float32 [B, W, M].

        Raises:
          ValueError: queries and keys differ in width.
        """
        if queries_BWC.shape[-1] != mapped_BMA.shape[-1]:
            raise ValueError(
                f"the dot score of states of width {queries_BWC.shape[-1]} and of encoder states "
                f"of width {mapped_BMA.shape[-1]}: both must be as wide, and a bidirectional "
                "encoder's are twice as wide. Set model.score=general, or model.direction=backward"
            )
        return jnp.einsum(
            "bwa,bma->bwm", queries_BWC, mapped_BMA, preferred_element_type=jnp.float32
        )


class GeneralScore(DotScore):
    """q . W k.

    width: C.
    """

    width: int
    kernel_init: Initializer = FAN_IN
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make W."""
        self.key = Dense(self.width, use_bias=False, kernel_init=self.kernel_init, ops=self.ops)

    def map_keys(self, keys_BME: jax.Array) -> jax.Array:
        """Return W k, [B, M, C]."""
        return self.key(keys_BME)


class AdditiveScore(nn.Module):
    """v . tanh(W q + U k).

    hidden: A, the length of v.
    """

    hidden: int
    kernel_init: Initializer = FAN_IN
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make W, U and v."""
        linear = partial(Dense, use_bias=False, kernel_init=self.kernel_init, ops=self.ops)
        self.query = linear(self.hidden)
        self.key = linear(self.hidden)
        self.out = linear(1, out_dtype=jnp.float32)

    def map_keys(self, keys_BME: jax.Array) -> jax.Array:
        """Return U k, [B, M, A], which is the same for all queries."""
        return self.key(keys_BME)

    def __call__(self, queries_BWC: jax.Array, mapped_BMA: jax.Array) -> jax.Array:
        """Return the scores, float32 [B, W, M]."""
        hidden_BWMA = jnp.tanh(self.query(queries_BWC)[:, :, None] + mapped_BMA[:, None])
        return self.out(hidden_BWMA)[..., 0]


def average_states(
    scores_BWM: jax.Array, is_visible_BWM: jax.Array, states_BME: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the context vectors [B, W, E] and the attention weights, float32 [B, W, M].

    Args:
      scores_BWM: float32.
      is_visible_BWM: bool, whether a query may attend to a state. Others have the weight 0, unless
        there is none that it may attend to.
      states_BME: the encoder's states.
    """
    scores_BWM = jnp.where(is_visible_BWM, scores_BWM, jnp.finfo(jnp.float32).min)
    weights_BWM = jax.nn.softmax(scores_BWM)
    return jnp.einsum("bwm,bme->bwe", weights_BWM.astype(states_BME.dtype), states_BME), weights_BWM
