"""Stack and unstack the layers in a tree of parameters.

Stacked: `layers`, whose leaves have a leading axis of layers. Unstacked: `layer_0`, `layer_1`, ...
This is the one place that converts between the two. Leaves are NumPy or JAX arrays;
`unstack_layers` also works under `jax.jit`.
"""

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np


def flatten_params(tree: Any, path: str = "") -> dict[str, Any]:
    """Return {path: leaf} of nested dicts, the keys joined by slashes."""
    if not isinstance(tree, Mapping):
        return {path: tree}
    inner = (
        flatten_params(value, f"{path}/{key}" if path else str(key)) for key, value in tree.items()
    )
    return {path: leaf for leaves in inner for path, leaf in leaves.items()}


def unflatten_params(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested dicts of {path: leaf}."""
    tree = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def stack_layers(layers: Sequence[Any]) -> Any:
    """Return the trees of the layers as one, of NumPy arrays with a leading axis of layers."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *layers)


def unstack_layers(params: Any) -> Any:
    """Return the parameters with each `layers` as `layer_0`, `layer_1`, ...; the rest unchanged."""
    if not isinstance(params, Mapping):
        return params
    unstacked = {}
    for name, subtree in params.items():
        depth = len(jax.tree.leaves(subtree)[0]) if name == "layers" else 0
        layers = {f"layer_{i}": jax.tree.map(itemgetter(i), subtree) for i in range(depth)}
        unstacked |= layers or {name: unstack_layers(subtree)}
    return unstacked


def match_layout(params: Any, like: Any) -> dict[str, Any]:
    """Return the leaves of `params` that `like` has, its layers stacked or unstacked as in `like`.

    Raises:
      KeyError: `params` lacks a leaf of `like`.
    """
    given, leaves = flatten_params(params), {}
    for path, leaf in flatten_params(like).items():
        stack, is_stacked, rest = path.partition("/layers/")
        if path not in given and (layer := re.fullmatch(r"(.*)/layer_(\d+)/(.*)", path)):
            leaves[path] = np.asarray(given[f"{layer[1]}/layers/{layer[3]}"])[int(layer[2])]
        elif is_stacked and path not in given:
            leaves[path] = stack_layers(
                [given[f"{stack}/layer_{i}/{rest}"] for i in range(leaf.shape[0])]
            )
        else:
            leaves[path] = given[path]
    return unflatten_params(leaves)
