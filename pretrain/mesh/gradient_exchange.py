"""Gradients that cross between devices once a step, over the mesh axes `fsdp` and `data`.

With sharding constraints alone, XLA sums the gradient of each layer inside the loop over layers,
and a table's gradient once for each of its uses. Here each device computes the gradient of its own
rows inside `jax.shard_map`: parameters are gathered once, in the dtype of the computation, and
each gradient is summed once, after the loops over layers and microbatches. What `fsdp` shards
arrives as shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

from pretrain import settings as schema
from pretrain.mesh.sharding import BATCH, format_path, make_partition_spec

# (params, variables, batch, totals, key) -> (gradients, (sums, new variables))
GradientFn = Callable[..., tuple[Any, tuple[dict[str, jax.Array], Any]]]

# The most bytes on each device of parameters that are gathered, and of their gradients: a quarter
# of the memory of a TPU v5e. Above it XLA gathers each layer when it is computed.
MAX_GATHERED_BYTES = 4 << 30
# A TPU gathers parts of other numbers of rows as sums of zeros and themselves: twice the bytes.
ROWS_OF_A_TILE = 16


def cast_params(params: Any, compute_dtype: str) -> Any:
    """Return the parameters in the compute dtype. Their gradients are float32 again.

    Nothing else casts parameters.
    """
    return jax.tree.map(lambda leaf: leaf.astype(compute_dtype), params)


def find_exchange_obstacle(
    params: Any, mesh: Mesh | AbstractMesh, compute_dtype: str, microbatches: int = 1
) -> str | None:
    """Return why the gradients of a run do not cross once a step, or None.

    params: shapes of the parameters.
    """
    if mesh.shape["fsdp"] * mesh.shape["data"] == 1:
        return "all rows are on one device"
    if isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "gpu":
        return "cuDNN's attention was never tried inside of shard_map"
    for axis in ("sequence", "model"):
        if mesh.shape[axis] > 1:
            return f"mesh.{axis}={mesh.shape[axis]} splits the computation of a row"
    gathered = count_gathered_bytes(params, mesh, compute_dtype, microbatches)
    if gathered > MAX_GATHERED_BYTES:
        return (
            f"gathered parameters and their gradients would take {gathered / 2**30:.1f} GiB of "
            f"each device, more than {MAX_GATHERED_BYTES >> 30}"
        )
    return None


def count_gathered_bytes(
    params: Any, mesh: Mesh | AbstractMesh, compute_dtype: str, microbatches: int = 1
) -> int:
    """Return the bytes on each device of parameters that are gathered, and of their gradients.

    A gradient has the dtype of the computation; microbatches have a sum in float32, too.
    """
    itemsize = np.dtype(compute_dtype).itemsize * 2 + (4 if microbatches > 1 else 0)
    split_dims = jax.tree.leaves(find_split_dims(params, mesh))
    return itemsize * sum(
        math.prod(leaf.shape)
        for leaf, dim in zip(jax.tree.leaves(params), split_dims, strict=True)
        if dim >= 0
    )


def describe_exchange(
    params: Any, mesh: Mesh | AbstractMesh, train: schema.Train, refusal: str | None = None
) -> list[str]:
    """Return lines on how gradients cross between the devices that have different rows.

    Args:
      params: shapes of the parameters.
      refusal: why they do not cross once a step even if nothing else is against it.
    """
    if mesh.shape["fsdp"] * mesh.shape["data"] == 1:
        return []
    obstacle = find_exchange_obstacle(params, mesh, train.compute_dtype, train.microbatches)
    if obstacle := obstacle or refusal:
        return [f"gradients are summed over devices in each layer: {obstacle}"]
    dtype = train.exchange_dtype or train.compute_dtype
    lines = [f"gradients are summed over devices once a step, in {dtype}"]
    if odd := find_odd_parts(params, mesh):
        path, rows = odd[0]
        lines.append(
            f"mesh.fsdp={mesh.shape['fsdp']} leaves {rows} rows of {path} on a device, and of "
            f"{len(odd)} parameters no multiple of {ROWS_OF_A_TILE}: a TPU gathers them with twice "
            "the bytes; a smaller fsdp with a larger data avoids it"
        )
    return lines


def find_odd_parts(params: Any, mesh: Mesh | AbstractMesh) -> list[tuple[str, int]]:
    """Return (path, rows) of each part of a parameter that is no multiple of ROWS_OF_A_TILE."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    split_dims = jax.tree.leaves(find_split_dims(params, mesh))
    return [
        (format_path(keys), rows)
        for (keys, leaf), dim in zip(leaves, split_dims, strict=True)
        if dim >= 0 and (rows := leaf.shape[dim] // mesh.shape["fsdp"]) % ROWS_OF_A_TILE
    ]


def make_param_specs(params: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Return the PartitionSpec of each parameter."""
    return jax.tree_util.tree_map_with_path(
        lambda keys, leaf: make_partition_spec(format_path(keys), leaf.shape, mesh), params
    )


def find_split_dims(params: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Return the dimension of each parameter that `fsdp` splits; -1 if it splits none."""

    def find_split_dim(spec: P) -> int:
        return tuple(spec).index("fsdp") if mesh.shape["fsdp"] > 1 and "fsdp" in spec else -1

    specs = make_param_specs(params, mesh)
    return jax.tree.map(find_split_dim, specs, is_leaf=lambda x: isinstance(x, P))


def make_gradient_exchange(
    mesh: Mesh, compute_dtype: str, exchange_dtype: str | None = None
) -> Callable[[GradientFn], GradientFn]:
    """Return a function that makes the gradient of a batch from the gradient of one device's rows.

    The function inside takes parameters in the dtype of the computation. Its model has the hooks of
    `make_model_hooks(..., on_shard=True)`, and its loss gathers nothing.

    Args:
      compute_dtype: the dtype of the computation.
      exchange_dtype: the dtype in which gradients are summed over devices; by default the
        computation's, in which each device computes its own.
    """
    batch_axes = BATCH[0]
    wire_dtype = exchange_dtype or compute_dtype

    def gather(leaf: jax.Array, dim: int) -> jax.Array:
        return leaf if dim < 0 else jax.lax.all_gather(leaf, "fsdp", axis=dim, tiled=True)

    def sum_gradient(gradient: jax.Array, dim: int) -> jax.Array:
        gradient = gradient.astype(wire_dtype)
        if dim < 0:
            return jax.lax.psum(gradient, batch_axes).astype(jnp.float32)
        gradient = jax.lax.psum_scatter(gradient, "fsdp", scatter_dimension=dim, tiled=True)
        return jax.lax.psum(gradient, "data").astype(jnp.float32)

    def exchange(compute_gradient: GradientFn) -> GradientFn:
        def compute_exchanged(
            params: Any, variables: Any, batch: Any, totals: dict[str, jax.Array], key: jax.Array
        ) -> tuple[Any, tuple[dict[str, jax.Array], Any]]:
            specs, dims = make_param_specs(params, mesh), find_split_dims(params, mesh)

            def compute_on_shard(shards: Any, *inputs: Any) -> Any:
                whole = jax.tree.map(gather, cast_params(shards, compute_dtype), dims)
                gradients, (sums, new_variables) = compute_gradient(whole, *inputs)
                gradients = jax.tree.map(sum_gradient, gradients, dims)
                return gradients, (jax.lax.psum(sums, batch_axes), new_variables)

            return jax.shard_map(
                compute_on_shard,
                mesh=mesh,
                in_specs=(specs, BATCH, BATCH, P(), P()),
                out_specs=(specs, (P(), BATCH)),
                # No exchange is differentiated, and a kernel does not say how its outputs vary.
                check_vma=False,
            )(params, variables, batch, totals, key)

        return compute_exchanged

    return exchange
