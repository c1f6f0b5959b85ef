"""Inside a model: the hidden states behind each of its layers, and the weights of each of its attentions, in one call.

    seen = observe(model, params, token_ids, attention_mask, method="encode")        an encoder: seen.states, seen.weights["attention"]
    seen = observe(model, params, token_ids, method="states")                  a decoder alone
    seen = observe(model, params, memory_BMD, encoder_attention_mask, ids, method="decode")   the other half of an encoder-decoder, and "cross"

The call is watched from outside, by Linen's interceptors and by a core in the place of the softmax, so that no paper knows of it and a training
step is the same with and without. Layers run one behind the other: a scanned stack would keep what is inside to itself.

B batch   L length   M length of what is read   D width   H heads   K head width
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.layer_layout import unstack_layers
from models.layers.ops import attend
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer, PreNormLayer

LAYERS = (PostNormLayer, PreNormLayer)


class Inside(NamedTuple):
    """output: what the call returned.

    states: depth + 1 of [B, L, D]: what the first layer reads, then what stands behind each layer; the last is behind the model's last norm,
    where it has one (GPT-2, T5), so that it is what the model's head reads. weights: {"attention": depth of [B, H, L, M]}, float32, and
    {"cross": the same} of a decoder that reads a memory; each row sums to 1.
    """

    output: object
    states: tuple[jax.Array, ...]
    weights: dict[str, tuple[jax.Array, ...]]


def observe(model, params, *arguments, method):
    """Call a method of a model that goes through one stack of layers once, without dropout, and return what was `Inside`.

    To be called within a `jax.jit`, which leaves out whatever of it nobody reads. Parameters may be those of a scanned stack, or sharded.
    Raises ValueError where the call went through several stacks, or none.
    """
    seen, weights, reading = [], {}, []

    def watch(call, args, kwargs, context):
        module = context.module
        if context.method_name != "__call__" or not isinstance(module, (Stack, Attention, *LAYERS)):
            return call(*args, **kwargs)
        if isinstance(module, Stack):
            seen.append([args[0]])
        if isinstance(module, Attention):
            reading.append(module.name)
        result = call(*args, **kwargs)
        if isinstance(module, LAYERS):
            seen[-1].append(result)
        return result

    def core(q_BLHK, k_BMHK, v_BMHK, **settings):
        # Attention is linear in v: what it makes of the unit vectors are its weights. A kernel would take no v of that width.
        B, M, H, _ = v_BMHK.shape
        unit_BMHM = jnp.broadcast_to(jnp.eye(M, dtype=jnp.float32)[:, None], (B, M, H, M))
        weights.setdefault(reading[-1], []).append(
            attend(q_BLHK, k_BMHK, unit_BMHM, **settings).swapaxes(1, 2)
        )
        return model.ops.attend(q_BLHK, k_BMHK, v_BMHK, **settings)

    plain = model.clone(
        config=dataclasses.replace(model.config, scan=False, remat=False),
        ops=model.ops._replace(attend=core),
    )
    params = unstack_layers(params) if model.config.scan else params
    with nn.intercept_methods(watch):
        output = plain.apply({"params": params}, *arguments, method=method)
    if len(seen) != 1:
        raise ValueError(
            f"{type(model).__name__}.{method} goes through {len(seen)} stacks of layers; one can be observed at a time"
        )
    last = output[0] if isinstance(output, tuple) else output
    return Inside(
        output, (*seen[0][:-1], last), {name: tuple(each) for name, each in weights.items()}
    )
