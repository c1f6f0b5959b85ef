"""Decoding: from a model's scores to text, one id after the other.

B batch   M input length   T output length   D width   V vocabulary
"""

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames=("model", "length", "start", "end", "pad"))
def generate(model, params, inputs_BM, inputs_valid_BM, *, length, start=0, end=1, pad=0):
    """The likeliest next id, again and again, from an encoder-decoder: int32 [B, T = length].

    model: a Linen module with the methods `encode`, `decode` and `logits` of `models.t5.T5`. Each row begins with
    `start`, which is left out, and ends with `end`, behind which stands `pad`. Stops when all rows have ended. The
    inputs are read once; each step reads all that was written again.
    """
    apply = partial(model.apply, {"params": params})
    memory_BMD = apply(inputs_BM, inputs_valid_BM, method="encode")
    B = inputs_BM.shape[0]

    def unfinished(state):
        t, _, ended_B = state
        return (t < length) & ~ended_B.all()

    def step(state):
        t, tokens_BT, ended_B = state
        y_BTD = apply(memory_BMD, inputs_valid_BM, tokens_BT[:, :-1], method="decode")
        logits_BV = apply(jax.lax.dynamic_slice_in_dim(y_BTD, t, 1, axis=1), method="logits")[:, 0]
        next_B = jnp.where(ended_B, pad, jnp.argmax(logits_BV, axis=-1).astype(jnp.int32))
        tokens_BT = jax.lax.dynamic_update_slice_in_dim(tokens_BT, next_B[:, None], t + 1, axis=1)
        return t + 1, tokens_BT, ended_B | (next_B == end)

    tokens_BT = jnp.full((B, length + 1), pad, jnp.int32).at[:, 0].set(start)
    _, tokens_BT, _ = jax.lax.while_loop(unfinished, step, (jnp.int32(0), tokens_BT, jnp.zeros(B, bool)))
    return tokens_BT[:, 1:]
