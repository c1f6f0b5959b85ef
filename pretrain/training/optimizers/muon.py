"""Muon (Jordan et al. 2024) for the matrices in the table of axes, by `optax.contrib`.

A kernel of attention or of an MLP has an axis `embed` and an axis `heads` or `mlp`
(PARAMETER_DIMENSIONS); the first of the two is the input. Each layer of a scanned stack is a
matrix, and by default each head: a head with large gradients does not change the other heads, and
heads that `mesh.model` shards stay on their devices.
"""

from collections.abc import Sequence
from typing import Any

import jax
import optax
import optax.contrib
from optax.contrib import MuonDimensionNumbers

from pretrain.mesh.sharding import KeyPath, find_dimension_names, format_path
from pretrain.settings import Muon
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    find_weight_decay,
    make_weight_decay_mask,
)
from pretrain.training.schedules import Schedule

SCOPE = "muon"  # of the operations on matrices, by which a plan finds their exchanges


def build(config: Muon, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of a `Muon` configuration.

    Its `init` raises ConfigError for a model without a kernel of attention or an MLP.
    """

    def find_matrices(params: optax.Params) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda keys, leaf: find_matrix(format_path(keys), leaf.shape, config.per_head), params
        )

    muon = optax.contrib.muon(
        learning_rate,
        ns_steps=config.newton_schulz_steps,
        beta=config.momentum,
        weight_decay=find_weight_decay(config),
        muon_weight_dimension_numbers=find_matrices,
        consistent_rms=config.consistent_rms or None,
    )
    adam = optax.adamw(
        learning_rate,
        config.beta1,
        config.beta2,
        config.epsilon,
        weight_decay=find_weight_decay(config),
        mask=make_weight_decay_mask,
    )
    muon = muon._replace(update=jax.named_scope(SCOPE)(muon.update))
    return optax.chain(
        clip_by_global_norm(config.max_grad_norm),
        optax.partition({"muon": muon, "adam": adam}, label_params),
    )


def label_params(params: optax.Params) -> Any:
    """Return the tree of "muon" for matrices and "adam" for other parameters.

    Raises:
      ConfigError: no parameter is a matrix.
    """

    def label_leaf(keys: KeyPath, leaf: Any) -> str:
        return "adam" if find_matrix(format_path(keys), leaf.shape) is None else "muon"

    labels = jax.tree_util.tree_map_with_path(label_leaf, params)
    is_masked = lambda leaf: isinstance(leaf, optax.MaskedNode)  # noqa: E731 - of other groups
    is_whole = not any(map(is_masked, jax.tree.leaves(params, is_leaf=is_masked)))
    if is_whole and "muon" not in jax.tree.leaves(labels):
        raise ConfigError(
            "optimizer=muon: no trained parameter of this model is a matrix of attention or of an "
            "MLP; set optimizer=adamw"
        )
    return labels


def find_matrix(
    path: str, shape: Sequence[int], per_head: bool = True
) -> MuonDimensionNumbers | None:
    """Return the axes that are a matrix' input and output; None for a parameter without matrices.

    Axes that are neither, such as layers, number the matrices.
    """
    names = find_dimension_names(path, shape)
    if "embed" not in names or not {"heads", "mlp"} & {*names}:
        return None
    embed = names.index("embed")
    first = 1 if names[0] is None else 0  # after the layers of a stack
    others = [axis for axis in range(first, len(names)) if axis != embed]
    if per_head:
        others = [axis for axis in others if names[axis] != "heads"]
    axes = ((embed,), tuple(others))
    return MuonDimensionNumbers(*(axes if embed == first else axes[::-1]))
