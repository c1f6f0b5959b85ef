"""Capture the hidden states of every layer and the weights of every attention of a model.

    # An encoder: activations.hidden_states, activations.attention_weights["attention"].
    activations = capture_activations(model, params, token_ids, attention_mask, method="encode")
    # A decoder.
    activations = capture_activations(model, params, token_ids, method="compute_states")
    # The decoder of an encoder-decoder: activations.attention_weights["cross"], too.
    arguments = memory_BMD, encoder_attention_mask, ids
    activations = capture_activations(model, params, *arguments, method="decode")

The model is called through Linen's method interceptors, with an `attend` that also records weights.
A training step is unaffected. Layers are unrolled, because a scanned stack does not expose its
intermediates. No model file of layers of attention contains code for this. Recurrent layers run
within a scan over positions, and cannot be observed there: their modules sow `hidden_states` and
`attention_weights` into the collection `intermediates`.

B batch   L query length   M key length   D width   H heads   K head width
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.layer_layout import unstack_layers
from models.layers.long_rows.reversible import ReversibleLayer, ReversibleStack
from models.layers.ops import attend
from models.layers.recurrent.layer import RecurrentLayer
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer, PreNormLayer, SandwichLayer

LAYERS = (PostNormLayer, PreNormLayer, SandwichLayer, ReversibleLayer, RecurrentLayer)
STACKS = (Stack, ReversibleStack)
RECORDED = (Attention, *LAYERS, *STACKS)


class LayerActivations(NamedTuple):
    """The activations of one call.

    output: what the call returned.
    hidden_states: depth + 1 arrays [B, L, D]: the input of the first layer, then the output of
      each layer. The last one is after the model's final norm where it has one (GPT-2, T5), and is
      therefore what the model's head reads. Of reversible layers they are the second stream, and
      the last one is both, [B, L, 2 D].
    attention_weights: {"attention": depth arrays [B, H, L, M]}, float32, and the same under "cross"
      for a decoder with cross-attention. The weights of a query sum to 1.
    """

    output: Any
    hidden_states: tuple[jax.Array, ...]
    attention_weights: dict[str, tuple[jax.Array, ...]]


def capture_activations(model: Any, params: Any, *arguments: Any, method: str) -> LayerActivations:
    """Call a method of a model without dropout, and return its activations.

    Call it within `jax.jit`, which removes what is not used of the result.

    Args:
      model: a module of `models.build`.
      params: its parameters; stacked or unstacked, sharded or not.
      *arguments, method: a method that applies one stack of layers once, and its arguments.

    Raises:
      ValueError: the method applies another number of stacks, or a layer outside of its stack.
    """
    hidden_states, weights, attention_names = [], {}, []

    def record_call(
        call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        if context.method_name != "__call__" or not isinstance(module, RECORDED):
            return call(*args, **kwargs)
        if isinstance(module, STACKS):
            hidden_states.append([args[0]])
        if isinstance(module, Attention):
            attention_names.append(module.name)
        result = call(*args, **kwargs)
        # A layer outside of a stack has no hidden states. Of a reversible layer's two streams, the
        # next layer reads the second one first.
        if isinstance(module, LAYERS) and hidden_states:
            hidden_states[-1].append(result[1] if isinstance(result, tuple) else result)
        return result

    def record_weights(
        q_BLHK: jax.Array, k_BMHK: jax.Array, v_BMHK: jax.Array, **settings: Any
    ) -> jax.Array:
        # Attention is linear in v: with unit vectors as values it returns its weights. They go
        # through the plain `attend`, because attention kernels take no values of width M.
        B, M, H, _ = v_BMHK.shape
        unit_BMHM = jnp.broadcast_to(jnp.eye(M, dtype=jnp.float32)[:, None], (B, M, H, M))
        weights.setdefault(attention_names[-1], []).append(
            attend(q_BLHK, k_BMHK, unit_BMHM, **settings).swapaxes(1, 2)
        )
        return model.ops.attend(q_BLHK, k_BMHK, v_BMHK, **settings)

    plain = model.clone(
        config=dataclasses.replace(model.config, scan=False, remat=False),
        ops=model.ops._replace(attend=record_weights),
    )
    variables = {"params": unstack_layers(params) if model.config.scan else params}
    with nn.intercept_methods(record_call):
        output, sown = plain.apply(variables, *arguments, method=method, mutable=["intermediates"])
    if sown:
        activations = _read_sown(output, sown["intermediates"])
        _check_states(model, method, [activations.hidden_states])
        return activations
    _check_states(model, method, hidden_states)
    last = output[0] if isinstance(output, tuple) else output
    tuples = {name: tuple(layers) for name, layers in weights.items()}
    return LayerActivations(output, (*hidden_states[0][:-1], last), tuples)


def _check_states(model: Any, method: str, hidden_states: Sequence[Sequence[jax.Array]]) -> None:
    """Raise ValueError unless one stack has a state before its first layer and after each.

    hidden_states: of each stack.
    """
    name, depth = type(model).__name__, model.config.depths[-1 if method == "decode" else 0]
    if len(hidden_states) != 1:
        raise ValueError(
            f"{name}.{method} goes through {len(hidden_states)} stacks of layers; one can be "
            "observed at a time"
        )
    if (num_states := len(hidden_states[0])) != depth + 1:
        raise ValueError(
            f"{name}.{method} has {num_states} hidden states, and a model of {depth} layers should "
            f"have {depth + 1}: put all of its layers in one Stack, and let `depths` of its "
            "configuration count them"
        )


def _read_sown(output: Any, sown: Any) -> LayerActivations:
    """Return the activations that one module of recurrent layers sowed."""
    ((_, module),) = sown.items()
    weights = module.get("attention_weights", ({},))
    return LayerActivations(output, module["hidden_states"][0], weights[0])
