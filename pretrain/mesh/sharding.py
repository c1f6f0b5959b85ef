"""The sharding of every parameter: one table, and no other code knows the mesh axes.

The end of a parameter's path determines the names of its dimensions (PARAMETER_DIMENSIONS), and a
name determines a mesh axis (MESH_AXES). The optimizer's moments are sharded as the parameter whose
path theirs ends with. The parameters of a scanned stack have one more dimension, in front.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain import settings as schema

AXES = ("data", "fsdp", "sequence", "model")

# fsdp is the major axis: with P(("data", "fsdp")) XLA's partitioner (jaxlib 0.7 to 0.10 at least,
# on CPU) computes gradients that are 60 to 120 % off on a 2x2x2 mesh, while the loss is exact.
# tests/pretrain/training/test_step.py compares parameters for this reason.
BATCH = P(("fsdp", "data"))
ACTIVATIONS = P(("fsdp", "data"), "sequence")

KeyPath = tuple[Any, ...]  # of jax.tree_util

MESH_AXES = {
    "vocab": "model",
    "heads": "model",
    "mlp": "model",
    "embed": "fsdp",
    "rank": "fsdp",
    None: None,
}

POOLED = "pooler|embedding_projection|next_sentence_head|sentence_order_head"
HEADS = "discriminator_head/(transform|score)"
HEADS += "|(distilled_classifier|classifier|scores|span)/(transform|out)"
# (end of the path, name of each dimension). A parameter matches exactly one row. The input of a
# norm is never sharded over `model`: with one row per shard the gradient would be wrong, by the
# same kind of bug as above.
PARAMETER_DIMENSIONS = (
    (r"((token|static|ngram|source|target)_embedding|token_delta)/embedding", ("vocab", "embed")),
    (r"(position|token_type|row|column|relative)_embedding/embedding", (None, "embed")),
    (r"(attention|cross)/(query|key|value|gate)/kernel", ("embed", "heads", None)),
    (r"(attention|cross)/(query|key|value|gate)/bias", ("heads", None)),
    (r"(attention|cross)/out/kernel", ("heads", None, "embed")),
    (r"mlp/(gate|up)/kernel", ("embed", "mlp")),
    (r"mlp/(gate|up)/bias", ("mlp",)),
    (r"mlp/down/kernel", ("mlp", "embed")),
    (r"((attention|cross)/out|mlp/down)/bias", (None,)),
    # of LoRA: the factors of these kernels; the module around those that share an input has one
    (r"(attention|cross|mlp)(/(query|key|value|gate|up))?/lora_a", ("embed", None)),
    (r"(attention|cross)/(query|key|value|gate)/lora_b", (None, "heads", None)),
    (r"(attention|cross)/out/lora_a", ("heads", None, None)),
    (r"mlp/(gate|up)/lora_b", (None, "mlp")),
    (r"mlp/down/lora_a", ("mlp", None)),
    (r"((attention|cross)/out|mlp/down)/lora_b", (None, "embed")),
    (r"(\w+_)?norm/(scale|bias)", (None,)),
    # of images: the kernel of patches, learned tokens
    (r"patch_embedding/kernel", (None, None, None, "embed")),
    (r"(patch_embedding|input|words/projection|lm_head/clusters)/bias", (None,)),
    (r"(\w+_token|contact_(weights|bias)|mix/weights|(attention|mlp)_mix)", (None,)),
    # of a small convolutional network: filters, sub-samplings, and the codes of classes
    (r"c[13]/filters", (None, None, None)),
    (r"s[24]/coefficient", (None,)),
    (r"c5/kernel", (None, None, None, None)),
    (r"f6/kernel", (None, None)),
    (r"(c[135]|s[24]|f6)/bias", (None,)),
    (r"output/codes", (None, None)),
    (r"\w+_bias/table", (None, "heads")),  # relative positions
    (rf"({POOLED}|(mlm_)?head/transform|{HEADS})/kernel", ("embed", None)),
    (rf"({POOLED}|mlm_head/transform|{HEADS})/bias", (None,)),
    (r"m?lm_head/bias", ("vocab",)),
    (r"lm_head/kernel", ("embed", "vocab")),
    # of positions, to a rank: of all heads, and of each head
    (r"(key_|value_)?projection", (None, "rank")),
    (r"head_(key|value)_projection", ("heads", None, "rank")),
    # of relative attention, of two streams and of adaptive softmax
    (r"attention/position/kernel", ("embed", "heads", None)),
    (r"(content|position|text)_bias", ("heads", None)),
    (r"(text|relative)_embedding", (None, "heads", None)),
    (r"query_embedding", (None,)),
    (r"lm_head/(clusters|projection)/kernel", ("embed", None)),
    # of LSTMs, whose gates are not split; and of a decoder that attends
    (r"(input|recurrent|project)/kernel", ("embed", None)),
    (r"decoder/(start_\d+|out|align/(query|key|out))/kernel", ("embed", None)),
    (r"decoder/(start_\d+|out)/bias", (None,)),
    # of words read by their characters, and of the mix of layers
    (r"character_embedding/embedding", (None, None)),
    (r"highway_\d+/(gate|transform)/kernel", ("embed", None)),
    (r"highway_\d+/(gate_bias|transform/bias)", (None,)),
    (r"words/projection/kernel", ("embed", None)),
    (r"mix/scale|log_scale", ()),
    # of encoders of words: hidden layers, filters of windows
    (r"layer_\d+/kernel", ("embed", None)),
    (r"window_\d+/kernel", (None, "embed", None)),
    (r"(layer|window)_\d+/bias", (None,)),
)


def make_mesh(mesh: schema.Mesh, devices: Sequence[Any] | None = None) -> Mesh:
    """Return a `jax.sharding.Mesh` over all devices, in the order that suits their network.

    Several TPU slices are the outer part of the axis `data`, so that the slower network between
    them carries only one sum of gradients per step.

    Raises:
      ValueError: the sizes do not multiply to the number of devices, or several are -1.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [getattr(mesh, axis) for axis in AXES]
    if sizes.count(-1) > 1:
        raise ValueError(f"mesh {mesh}: only one axis may be -1, which takes the remaining devices")
    known = int(np.prod([size for size in sizes if size != -1]))
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if int(np.prod(sizes)) != len(devices):
        raise ValueError(
            f"mesh {mesh} does not cover {len(devices)} devices; -1 on one axis takes the "
            "remaining devices"
        )
    # Auto must be explicit: with Explicit axes, the default of jax.make_mesh, the gather of an
    # embedding fails.
    types = (AxisType.Auto,) * len(AXES)
    num_slices = len({get_slice_index(device) for device in devices})
    if sizes[0] % num_slices:
        raise ValueError(
            f"mesh.data={sizes[0]} on {num_slices} slices: it must be a multiple of the number of "
            "slices, so that only `data` crosses the slower network between them"
        )
    # A mesh of 2 x 2 x 4 fits onto a slice of 4 x 4 only if physical axes are split.
    options = {"devices": devices, "allow_split_physical_axes": True}
    if num_slices == 1:
        device_array = mesh_utils.create_device_mesh(sizes, **options)
    else:
        device_array = mesh_utils.create_hybrid_device_mesh(
            (sizes[0] // num_slices, *sizes[1:]), (num_slices, 1, 1, 1), **options
        )
    return Mesh(device_array, AXES, axis_types=types)


def get_slice_index(device: Any) -> int:
    """Return the index of the TPU slice of a device; 0 for a single slice and off TPUs."""
    return getattr(device, "slice_index", 0) if device.platform == "tpu" else 0


def make_batch_sharding(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """Return the sharding of a batch: rows over fsdp and data, other dimensions unsharded."""
    return NamedSharding(mesh, BATCH)


def make_replicated_sharding(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, P())


def make_constraint(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    """Return the function that models apply to the activations [B, L, D] of each layer.

    It shards rows as in the batch, and positions over `sequence`. Without it XLA may prefer
    to shard features and to replicate rows, which took ten times the memory for BERT-large.
    """
    rows_only, with_positions = make_batch_sharding(mesh), NamedSharding(mesh, ACTIVATIONS)
    return lambda x: jax.lax.with_sharding_constraint(
        x, with_positions if x.shape[1] % mesh.shape["sequence"] == 0 else rows_only
    )


def make_gather(mesh: Mesh) -> Callable[[Any], Any]:
    """Return a function that gathers parameters over `fsdp` but leaves the split over `model`."""

    def gather_params(params: Any) -> Any:
        if mesh.shape["fsdp"] == 1:
            return params
        return jax.tree_util.tree_map_with_path(
            lambda keys, leaf: jax.lax.with_sharding_constraint(leaf, drop_fsdp_axis(keys, leaf)),
            params,
        )

    def drop_fsdp_axis(keys: KeyPath, leaf: jax.Array) -> NamedSharding:
        axes = make_partition_spec(format_path(keys), leaf.shape, mesh)
        return NamedSharding(mesh, P(*(None if axis == "fsdp" else axis for axis in axes)))

    return gather_params


def format_path(keys: KeyPath) -> str:
    """Return the path of a leaf as text, such as `bert/encoder/layers/mlp/up/kernel`."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def find_dimension_names(path: str, shape: Sequence[int]) -> tuple[str | None, ...]:
    """Return the names of the dimensions of the parameter at `path`.

    Raises:
      ValueError: no row or several rows of the table match, or the number of dimensions differs.
    """
    rows = [(end, dims) for end, dims in PARAMETER_DIMENSIONS if re.search(rf"(^|/){end}$", path)]
    if len(rows) != 1:
        matches = " and ".join(repr(end) for end, _ in rows) or "no row"
        raise ValueError(
            f"pretrain/mesh/sharding.py: {matches} of PARAMETER_DIMENSIONS matches {path}; "
            "exactly one row must match"
        )
    dims = (None, *rows[0][1]) if re.search(r"(^|/)layers/", path) else rows[0][1]
    if len(dims) != len(shape):
        raise ValueError(
            f"pretrain/mesh/sharding.py: {path} has shape {tuple(shape)}, but "
            f"{rows[0][0]!r} has {len(dims)} dimensions"
        )
    return dims


def make_partition_spec(path: str, shape: Sequence[int], mesh: Mesh | AbstractMesh) -> P:
    """Return the PartitionSpec of a parameter.

    A dimension that does not divide by its axis is not sharded; see `find_undivided_dims`.
    """
    axes = (MESH_AXES[dim] for dim in find_dimension_names(path, shape))
    return P(
        *(
            axis if axis and size % mesh.shape[axis] == 0 else None
            for axis, size in zip(axes, shape)
        )
    )


def make_param_sharding(path: str, shape: Sequence[int], mesh: Mesh) -> NamedSharding:
    """Return the sharding of the parameter at `path`."""
    return NamedSharding(mesh, make_partition_spec(path, shape, mesh))


def find_undivided_dims(params: Any, mesh: Mesh) -> list[tuple[str, int, str]]:
    """Return (path, size, axis) of the dimensions that do not divide by the axis of the table."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [
        (format_path(keys), size, axis)
        for keys, leaf in leaves
        for dim, size in zip(find_dimension_names(format_path(keys), leaf.shape), leaf.shape)
        if (axis := MESH_AXES[dim]) and size % mesh.shape[axis]
    ]


def _drop_axis(shape: tuple[int, ...], spec: P, actual: tuple[int, ...]) -> P | None:
    """Return the spec without an axis, where `shape` without it is `actual`, or None."""
    without = ((*shape[:axis], *shape[axis + 1 :]) for axis in range(len(shape)))
    axis = next((axis for axis, rest in enumerate(without) if rest == actual), None)
    return None if axis is None else P(*spec[:axis], *spec[axis + 1 :])


def make_state_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Return a NamedSharding for every leaf of a `TrainState` of arrays or shapes.

    Variables of the model are sharded as the rows of a batch, a leaf of the optimizer as the
    parameter of its shape, or, if large, of its shape and one axis (Adafactor's rows and columns).

    Raises:
      ValueError: a large leaf of the optimizer follows no parameter.
    """
    params = {
        format_path(keys): (leaf.shape, make_partition_spec(format_path(keys), leaf.shape, mesh))
        for keys, leaf in jax.tree_util.tree_leaves_with_path(state.params)
    }

    def make_moment_sharding(keys: KeyPath, leaf: Any) -> NamedSharding:
        path, is_large = format_path(keys), leaf.size >= 1 << 24
        for start in range(len(keys)):
            param = params.get(format_path(keys[start:]))
            if param and param[0] == leaf.shape:
                return NamedSharding(mesh, param[1])
            if param and is_large and (spec := _drop_axis(*param, leaf.shape)):
                return NamedSharding(mesh, spec)
        if is_large:
            what = f"the optimizer's {path} {leaf.shape} follows no parameter"
            raise ValueError(f"{what} and is too large to replicate ({__name__})")
        return make_replicated_sharding(mesh)

    return state.replace(
        step=make_replicated_sharding(mesh),
        params=jax.tree_util.tree_map_with_path(
            lambda keys, leaf: NamedSharding(mesh, params[format_path(keys)][1]), state.params
        ),
        optimizer=jax.tree_util.tree_map_with_path(make_moment_sharding, state.optimizer),
        variables=jax.tree.map(lambda _: make_batch_sharding(mesh), state.variables),
    )
