"""Which mesh axis each dimension of each parameter is split over: one table, and nothing else knows the mesh.

The end of a parameter's path leads to the meaning of its dimensions (PARAMETERS), a meaning leads to a mesh axis (AXES_OF). The
optimizer's moments follow the parameter whose path theirs ends with. A scanned stack's leaves carry one dimension more, in front.
"""

import re

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

AXES = ("data", "fsdp", "sequence", "model")

# fsdp is the major one: with P(("data", "fsdp")) XLA's partitioner (jaxlib 0.7 to 0.10 at least, on CPU) computes gradients that are
# 60 to 120 % off on a 2x2x2 mesh, under a loss that is exact. tests/pretrain/training/test_step.py compares parameters for this reason.
BATCH = P(("fsdp", "data"))
ACTIVATIONS = P(("fsdp", "data"), "sequence")

AXES_OF = {"vocab": "model", "heads": "model", "mlp": "model", "embed": "fsdp", None: None}

# (the end of the path, the meaning of each dimension); a parameter matches exactly one row.
# What a norm reads is never split over `model`: at one row a shard the gradient would be wrong (same bug family as above).
PARAMETERS = (
    (r"token_embedding/embedding", ("vocab", "embed")),
    (r"(position|token_type)_embedding/embedding", (None, "embed")),
    (r"(attention|cross)/(query|key|value)/kernel", ("embed", "heads", None)),
    (r"(attention|cross)/(query|key|value)/bias", ("heads", None)),
    (r"(attention|cross)/out/kernel", ("heads", None, "embed")),
    (r"(attention|cross)/out/bias", (None,)),
    (r"mlp/(gate|up)/kernel", ("embed", "mlp")),
    (r"mlp/(gate|up)/bias", ("mlp",)),
    (r"mlp/down/kernel", ("mlp", "embed")),
    (r"mlp/down/bias", (None,)),
    (r"(\w+_)?norm/(scale|bias)", (None,)),
    (r"\w+_bias/table", (None, "heads")),  # relative positions
    (r"(pooler|mlm_head/transform|next_sentence_head)/kernel", ("embed", None)),
    (r"(pooler|mlm_head/transform|next_sentence_head)/bias", (None,)),
    (r"(embedding_projection|sentence_order_head)/kernel", ("embed", None)),
    (r"(embedding_projection|sentence_order_head)/bias", (None,)),
    (r"discriminator_head/(transform|score)/kernel", ("embed", None)),
    (r"discriminator_head/(transform|score)/bias", (None,)),
    (r"(classifier|scores|span)/(transform|out)/kernel", ("embed", None)),
    (r"(classifier|scores|span)/(transform|out)/bias", (None,)),
    (r"mlm_head/bias", ("vocab",)),
    (r"lm_head/kernel", ("embed", "vocab")),
)


def make_mesh(mesh, devices=None):
    """A `jax.sharding.Mesh` over all devices (or those given) for a `config.Mesh`, in the order that suits their network.

    Several TPU slices lie along the outer part of `data`: the network between them carries one sum of gradients a step, no more.
    Raises ValueError when the sizes do not multiply to the number of devices, or more than one is -1.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [getattr(mesh, axis) for axis in AXES]
    if sizes.count(-1) > 1:
        raise ValueError(f"mesh {mesh}: only one of them may be -1, and takes what is left")
    known = int(np.prod([size for size in sizes if size != -1]))
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if int(np.prod(sizes)) != len(devices):
        raise ValueError(
            f"mesh {mesh} does not cover {len(devices)} devices; -1 on one axis takes what is left"
        )
    # Auto, explicitly: with Explicit axes, jax.make_mesh's default, the gather of an embedding fails.
    types = (AxisType.Auto,) * len(AXES)
    slices = len({slice_of(device) for device in devices})
    if sizes[0] % slices:
        raise ValueError(
            f"mesh.data={sizes[0]} on {slices} slices: it must be a multiple, so that only `data` crosses the slower network between them"
        )
    how = {
        "devices": devices,
        "allow_split_physical_axes": True,
    }  # 2 x 2 x 4 has no other way onto a slice of 4 x 4
    if slices == 1:
        placed = mesh_utils.create_device_mesh(sizes, **how)
    else:
        placed = mesh_utils.create_hybrid_device_mesh(
            (sizes[0] // slices, *sizes[1:]), (slices, 1, 1, 1), **how
        )
    return jax.sharding.Mesh(placed, AXES, axis_types=types)


def slice_of(device):
    """The TPU slice that a device belongs to; 0 where there is but one, and off TPUs."""
    return getattr(device, "slice_index", 0) if device.platform == "tpu" else 0


def batch_sharding(mesh):
    """Rows over fsdp and data; every other dimension whole."""
    return NamedSharding(mesh, BATCH)


def replicated(mesh):
    return NamedSharding(mesh, P())


def constrain(mesh):
    """The function that models apply to activations, once a block: rows split as the batch is, their positions over `sequence`.

    Without it XLA may prefer to split features and to repeat rows, which cost BERT-large ten times the memory.
    """
    whole, split = batch_sharding(mesh), NamedSharding(mesh, ACTIVATIONS)
    return lambda x: jax.lax.with_sharding_constraint(
        x, split if x.shape[1] % mesh.shape["sequence"] == 0 else whole
    )


def gathered(mesh):
    """A function of a tree of parameters that brings together what is split over `fsdp`, and leaves the split over `model`."""

    def gather(params):
        if mesh.shape["fsdp"] == 1:
            return params
        return jax.tree_util.tree_map_with_path(
            lambda keys, leaf: jax.lax.with_sharding_constraint(leaf, together(keys, leaf)), params
        )

    def together(keys, leaf):
        return NamedSharding(
            mesh,
            P(
                *(
                    None if axis == "fsdp" else axis
                    for axis in spec(path_of(keys), leaf.shape, mesh)
                )
            ),
        )

    return gather


def path_of(keys):
    """The path of a leaf as text: `bert/encoder/stack/layers/mlp/up/kernel`."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def meaning(path, shape):
    """The meaning of each dimension of the parameter at `path`. Raises ValueError unless exactly one row of the table fits."""
    rows = [(end, dims) for end, dims in PARAMETERS if re.search(rf"(^|/){end}$", path)]
    if len(rows) != 1:
        found = " and ".join(repr(end) for end, _ in rows) or "no row"
        raise ValueError(
            f"pretrain/distributed/sharding.py: {found} of PARAMETERS matches {path}; exactly one must"
        )
    dims = (None, *rows[0][1]) if re.search(r"(^|/)layers/", path) else rows[0][1]
    if len(dims) != len(shape):
        raise ValueError(
            f"pretrain/distributed/sharding.py: {path} has shape {tuple(shape)}, but {rows[0][0]!r} has {len(dims)} dimensions"
        )
    return dims


def spec(path, shape, mesh):
    """The PartitionSpec of a parameter. A dimension that its axis does not divide stays whole: see `kept_whole`."""
    axes = (AXES_OF[dim] for dim in meaning(path, shape))
    return P(
        *(
            axis if axis and size % mesh.shape[axis] == 0 else None
            for axis, size in zip(axes, shape)
        )
    )


def parameter_sharding(path, shape, mesh):
    """Where the parameter at `path` lies on the mesh."""
    return NamedSharding(mesh, spec(path, shape, mesh))


def kept_whole(params, mesh):
    """[(path, size, axis)] of the dimensions that the table would split but the mesh does not divide."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [
        (path_of(keys), size, AXES_OF[dim])
        for keys, leaf in leaves
        for dim, size in zip(meaning(path_of(keys), leaf.shape), leaf.shape)
        if AXES_OF[dim] and size % mesh.shape[AXES_OF[dim]]
    ]


def shardings(state, mesh):
    """A NamedSharding for every leaf of a `State` (arrays or `jax.eval_shape` of them).

    What a model keeps of each row is split as the rows are. A leaf of the optimizer that is shaped as its parameter is split as it; others (counts, Adafactor's rows and columns) are small
    and stand whole on every device.
    """
    params = {
        path_of(keys): (leaf.shape, spec(path_of(keys), leaf.shape, mesh))
        for keys, leaf in jax.tree_util.tree_leaves_with_path(state.params)
    }

    def of_moment(keys, leaf):
        path = path_of(keys)
        for start in range(len(keys)):
            shaped = params.get(path_of(keys[start:]))
            if shaped and shaped[0] == leaf.shape:
                return NamedSharding(mesh, shaped[1])
        if leaf.size >= 1 << 24:
            raise ValueError(
                f"pretrain/distributed/sharding.py: the optimizer's {path} {leaf.shape} follows no parameter and is too large to repeat"
            )
        return replicated(mesh)

    return state.replace(
        step=replicated(mesh),
        params=jax.tree_util.tree_map_with_path(
            lambda keys, leaf: NamedSharding(mesh, params[path_of(keys)][1]), state.params
        ),
        optimizer=jax.tree_util.tree_map_with_path(of_moment, state.optimizer),
        variables=jax.tree.map(lambda _: batch_sharding(mesh), state.variables),
    )
