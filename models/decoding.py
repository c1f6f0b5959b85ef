"""Decoding: from a model's scores to text, one id after the other.

B batch   M input length   T output length   N = M + T   D width   V vocabulary
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


@partial(jax.jit, static_argnames=("model", "length", "size", "end"))
def extend(model, params, tokens_BM, length_B, *, length, size, end=None):
    """The likeliest next id, again and again, behind each row of a decoder: int32 [B, T = length].

    model: a Linen module with the methods `states` and `logits` of `models.gpt.Gpt`; length_B: how many of a row's tokens are its own,
    1 at least; size: only ids below are written. A row ends with `end`, and the rest of it is `end` too. Stops when all rows
    have ended. Each step reads all that was written again.
    """
    apply, row = partial(model.apply, {"params": params}), jnp.arange(tokens_BM.shape[0])

    def unfinished(state):
        t, _, _, ended_B = state
        return (t < length) & ~ended_B.all()

    def step(state):
        t, tokens_BN, written_BT, ended_B = state
        x_BND = apply(tokens_BN, method="states")
        last_B1D = jnp.take_along_axis(x_BND, (length_B + t - 1)[:, None, None], axis=1)
        next_B = jnp.argmax(apply(last_B1D, method="logits")[:, 0, :size], axis=-1).astype(jnp.int32)
        if end is not None:
            next_B = jnp.where(ended_B, end, next_B)
            ended_B |= next_B == end
        return t + 1, tokens_BN.at[row, length_B + t].set(next_B), written_BT.at[:, t].set(next_B), ended_B

    written_BT = jnp.full((len(row), length), 0 if end is None else end, jnp.int32)
    start = (jnp.int32(0), jnp.pad(tokens_BM, ((0, 0), (0, length))), written_BT, jnp.zeros(len(row), bool))
    return jax.lax.while_loop(unfinished, step, start)[2]
