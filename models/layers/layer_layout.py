"""Trees of parameters with stacked layers (`layers`, with a leading axis of layers) or unstacked ones (`layer_0`, `layer_1`, ...).

The one place that changes between the two. Leaves are NumPy or JAX arrays; `unstack_layers` also works under `jax.jit`.
"""

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter

import jax
import numpy as np


def flatten(tree, path: str = "") -> dict:
    """Return {path: leaf} of nested dicts, the keys joined by slashes."""
    if not isinstance(tree, Mapping):
        return {path: tree}
    inner = (flatten(value, f"{path}/{key}" if path else str(key)) for key, value in tree.items())
    return {path: leaf for leaves in inner for path, leaf in leaves.items()}


def unflatten(leaves: Mapping) -> dict:
    """Return the nested dicts of {path: leaf}."""
    tree = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def stack_layers(layers: Sequence):
    """Return one tree of NumPy arrays, with a leading axis of layers, of the trees of several layers."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *layers)


def unstack_layers(params):
    """Return the parameters with each `layers` as `layer_0`, `layer_1`, ...; all else is as it was."""
    if not isinstance(params, Mapping):
        return params
    unstacked = {}
    for name, part in params.items():
        depth = len(jax.tree.leaves(part)[0]) if name == "layers" else 0
        layers = {f"layer_{i}": jax.tree.map(itemgetter(i), part) for i in range(depth)}
        unstacked |= layers or {name: unstack_layers(part)}
    return unstacked


def match_layout(params, like) -> dict:
    """Return the leaves of `params` that `like` has, each stack of layers stacked or unstacked as `like` has it.

    Raises KeyError for a leaf that `params` lacks.
    """
    found, leaves = flatten(params), {}
    for path, leaf in flatten(like).items():
        stack, is_stacked, rest = path.partition("/layers/")
        if path not in found and (layer := re.fullmatch(r"(.*)/layer_(\d+)/(.*)", path)):
            leaves[path] = np.asarray(found[f"{layer[1]}/layers/{layer[3]}"])[int(layer[2])]
        elif is_stacked and path not in found:
            leaves[path] = stack_layers(
                [found[f"{stack}/layer_{i}/{rest}"] for i in range(leaf.shape[0])]
            )
        else:
            leaves[path] = found[path]
    return unflatten(leaves)
