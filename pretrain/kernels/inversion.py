"""A reversible stack whose backward pass computes each layer's inputs from its outputs.

Its memory does not grow with the depth, but for the parameters' gradients and the discrete choices,
such as buckets: a few bytes a token and layer. It computes each layer once more. The streams that
it inverts differ from the forward pass's by rounding.

B batch   L length   D width
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from models.layers import ops
from models.layers.ops import Residual

Streams = tuple[jax.Array, jax.Array]


def apply_reversible(
    residuals: Sequence[Residual],
    layers: Any,
    shared: Any,
    x1_BLD: jax.Array,
    x2_BLD: jax.Array,
) -> Streams:
    """Return the outputs of a reversible stack, as `models.layers.ops.apply_reversible`."""

    @jax.custom_vjp
    def apply_layers(layers: Any, shared: Any, streams: Streams) -> Streams:
        return ops.apply_reversible(residuals, layers, shared, *streams)

    def apply_layers_bwd(
        saved: tuple[Any, ...], gradients: Streams
    ) -> tuple[dict[str, Any], None, Streams]:
        layers, shared, streams, all_choices = saved
        (_, gradients), d_params = jax.lax.scan(
            partial(_invert_layer, residuals, shared),
            (streams, gradients),
            (layers, all_choices),
            reverse=True,
        )
        return {"params": d_params, "key": None}, None, gradients

    apply_layers.defvjp(partial(_apply_layers_fwd, residuals), apply_layers_bwd)
    return apply_layers(layers, shared, (x1_BLD, x2_BLD))


def _apply_layers_fwd(
    residuals: Sequence[Residual], layers: Any, shared: Any, streams: Streams
) -> tuple[Streams, tuple[Any, ...]]:
    """Return the outputs, and what the backward pass reads: these, and all choices."""

    def apply_layer(streams: Streams, layer: Any) -> tuple[Streams, list[Any]]:
        all_choices = []
        for residual in residuals:
            x, y = streams
            change, choices = residual(layer, shared, y, None)
            streams = y, x + change
            all_choices.append(choices)
        return streams, all_choices

    streams, all_choices = jax.lax.scan(apply_layer, streams, layers)
    return streams, (layers, shared, streams, all_choices)


def _invert_layer(
    residuals: Sequence[Residual],
    shared: Any,
    carry: tuple[Streams, Streams],
    inputs: tuple[Any, list[Any]],
) -> tuple[tuple[Streams, Streams], Any]:
    """Return the inputs of a layer and their gradients, and the gradient of its parameters.

    Args:
      shared: what all layers read.
      inputs: its parameters and key, and the choices of its functions.
    """
    (streams, gradients), (layer, all_choices) = carry, inputs
    d_params = jax.tree.map(jnp.zeros_like, layer["params"])
    for residual, choices in zip(residuals[::-1], all_choices[::-1], strict=True):
        (y, x_new), (d_y, d_x) = streams, gradients

        def compute_change(
            params: Any, y: jax.Array, residual: Residual = residual, choices: Any = choices
        ) -> jax.Array:
            return residual({**layer, "params": params}, shared, y, choices)[0]

        change, transpose = jax.vjp(compute_change, layer["params"], y)
        d_more, d_change_y = transpose(d_x)
        d_params = jax.tree.map(jnp.add, d_params, d_more)
        streams, gradients = (x_new - change, y), (d_x, d_y + d_change_y)
    return (streams, gradients), d_params
