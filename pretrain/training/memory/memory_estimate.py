"""The estimate of a run's memory on each device, counted from abstract shapes and their shardings.

`plan` counts the same trees for machines that are absent.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from data.mixed import map_shapes
from models import build
from pretrain.mesh.gradient_exchange import count_gathered_bytes, find_exchange_obstacle
from pretrain.mesh.sharding import (
    MESH_AXES,
    find_dimension_names,
    format_path,
    make_batch_sharding,
    make_state_shardings,
)
from pretrain.training import flops
from pretrain.training.losses import Loss, LossOptions, MixedLoss
from pretrain.training.memory.device_memory import format_bytes
from pretrain.training.optimizers import make_frozen_test
from pretrain.training.program import Program, make_program
from pretrain.training.state import TrainState, init_variables

if TYPE_CHECKING:
    from jax.sharding import AbstractMesh, Mesh

    from pretrain.config import Run

# Factor of the rows of a traced batch. A residual whose size it divides depends on the rows, since
# no dimension of a parameter is a multiple of so large a prime number.
ROW_PRIME = 1009
MAX_SIZE = 2**31 - 1  # rows


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on each device during a training step.

    Attributes:
      held: {parameters, optimizer, batch}, the arguments of the step; exact.
      carried_gradients: lower bound of the gradients, which exist together with `held`.
      gradients: expected bytes of gradients and converted parameters.
      activations: expected bytes of the activations of one microbatch; None: not counted.
    """

    held: dict[str, int]
    carried_gradients: int
    gradients: int
    activations: int | None

    @property
    def certain(self) -> int:
        """The bytes that the step cannot do without."""
        return sum(self.held.values()) + self.carried_gradients

    @property
    def expected(self) -> int:
        """The bytes that the step is expected to take."""
        return sum(self.held.values()) + self.gradients + (self.activations or 0)

    def format_terms(self) -> str:
        """Return the terms of `expected` as text."""
        terms = self.held | {"gradients": self.gradients}
        if self.activations is not None:
            terms["activations"] = self.activations
        return ", ".join(f"{name} {format_bytes(count)}" for name, count in terms.items())

    def format_certain_terms(self) -> str:
        """Return the terms of `certain` as text."""
        terms = self.held | {"gradients": self.carried_gradients}
        return ", ".join(f"{name} {format_bytes(count)}" for name, count in terms.items() if count)


def estimate_memory(
    run: Run, mesh: Mesh, program: Program | None = None, with_activations: bool = True
) -> MemoryEstimate:
    """Return the estimate of a run on a mesh.

    Args:
      with_activations: whether to trace the forward pass, which takes a second or two.
    """
    program = program or make_program(run, mesh)
    held = count_held_bytes(program.abstract_state, program.state_shardings, program.batch)
    residuals = count_residuals(run, mesh, program) if with_activations else None
    return make_estimate(run, mesh, program.abstract_state.params, held, residuals)


def make_estimate(
    run: Run,
    mesh: Mesh | AbstractMesh,
    params: Any,
    held: dict[str, int],
    residuals: int | None,
) -> MemoryEstimate:
    """Return the estimate from its counts.

    Args:
      params: shapes of the parameters.
      held: as in `MemoryEstimate`.
      residuals: bytes on each device of the activations of a whole batch.
    """
    return MemoryEstimate(
        held=held,
        carried_gradients=count_carried_gradients(run, params, mesh.size),
        gradients=count_gradients(run, held, params, mesh),
        activations=None if residuals is None else residuals // run.train.microbatches,
    )


def estimate_on_devices(
    run: Run, program: Program, mesh: Mesh | AbstractMesh, residuals: int
) -> MemoryEstimate:
    """Return the estimate of a run on a mesh, whose devices may be absent.

    Args:
      residuals: as in `make_estimate`.
    """
    shardings = make_state_shardings(program.abstract_state, mesh)
    make_struct = partial(jax.ShapeDtypeStruct, sharding=make_batch_sharding(mesh))
    batch = map_shapes(make_struct, run.data.objective, run.data.batch_size)
    held = count_held_bytes(program.abstract_state, shardings, batch)
    return make_estimate(run, mesh, program.abstract_state.params, held, residuals)


def is_obviously_small(run: Run, available: int) -> bool:
    """Return whether the activations of a run fit without being counted.

    A value of a step costs several FLOPs, even in the smallest models more than it has bytes.
    """
    return flops.count_step_flops(run).all_pairs < available


# ---- counts ---------------------------------------------------------------------


def count_shard_bytes(tree: Any, shardings: Any) -> int:
    """Return the bytes on each device of a tree of shapes with a tree of shardings."""
    shards = jax.tree.map(
        lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize,
        tree,
        shardings,
    )
    return sum(jax.tree.leaves(shards))


def count_held_bytes(state: TrainState, shardings: TrainState, batch: Any) -> dict[str, int]:
    """Return {parameters, optimizer, batch}: bytes on each device of the arguments of a step.

    Args:
      state: shapes of the state.
      batch: shapes of a global batch, with their shardings. The variables of the model count as
        part of it.
    """
    batch_shardings = jax.tree.map(lambda leaf: leaf.sharding, batch)
    return {
        "parameters": count_shard_bytes(state.params, shardings.params),
        "optimizer": count_shard_bytes(state.optimizer, shardings.optimizer),
        "batch": count_shard_bytes(batch, batch_shardings)
        + count_shard_bytes(state.variables, shardings.variables),
    }


def count_carried_gradients(run: Run, params: Any, num_devices: int) -> int:
    """Return a lower bound of the bytes on each device of the gradients, which exist at once.

    Whether a step is taken depends on the norm of all gradients, so that all of them exist while
    the old state does. XLA may compute a single gradient twice instead of keeping it, but never one
    that a loop carries: a scanned stack's, and with microbatches all. The loop may have
    them in the dtype of the computation, and sharded over all devices.
    """
    is_summed = run.train.microbatches > 1
    itemsize = 4 if is_summed else np.dtype(run.train.compute_dtype).itemsize
    counted, is_frozen = 0, make_frozen_test(run)
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        path = format_path(keys)
        is_carried = is_summed or "layers" in path.split("/")
        if is_carried and not is_frozen(path):
            counted += leaf.size
    return counted * itemsize // num_devices


def count_gradients(run: Run, held: dict[str, int], params: Any, mesh: Mesh | AbstractMesh) -> int:
    """Return the expected bytes on each device of gradients and converted parameters.

    The parameters are converted to the dtype of the computation. Gradients of a microbatch are
    added to float32 sums. Those of gathered parameters are whole (`gradient_exchange`).
    """
    dtype, microbatches = run.train.compute_dtype, run.train.microbatches
    share = np.dtype(dtype).itemsize / 4
    converted = share if share < 1 else 0
    copies = 1 + share if microbatches > 1 else 1
    count = held["parameters"] * (copies + converted)
    if find_exchange_obstacle(params, mesh, dtype, microbatches) is None:
        count += count_gathered_bytes(params, mesh, dtype, microbatches)
    return int(count)


def count_residuals(run: Run, mesh: Mesh, program: Program) -> int:
    """Return the bytes on each device of what the backward pass reads of the forward pass.

    They count a whole batch, as if there were no microbatches, and proportional to its rows.
    This traces the forward pass. XLA recomputes some of these tensors, and adds temporary ones. A
    CPU computes bfloat16 in float32.
    """
    batch_size = run.data.batch_size
    if batch_size * ROW_PRIME > MAX_SIZE:  # no array has so many rows
        batch_size = mesh.shape["data"] * mesh.shape["fsdp"]
    num_rows = batch_size * ROW_PRIME
    batch = map_shapes(
        partial(jax.ShapeDtypeStruct, sharding=make_batch_sharding(mesh)),
        run.data.objective,
        num_rows,
    )
    variables = jax.eval_shape(
        partial(init_variables, build(run.model), run.data.objective, num_rows)
    )
    options = LossOptions(
        compute_dtype=run.train.compute_dtype, label_smoothing=run.train.label_smoothing
    )
    with jax.set_mesh(mesh):
        residuals = jax.eval_shape(
            partial(_pull_back, program.model, program.loss, options),
            program.abstract_state.params,
            variables,
            batch,
        )
    split_sizes = find_model_dims(program.abstract_state.params, mesh)
    shards = mesh.shape["data"] * mesh.shape["fsdp"] * mesh.shape["sequence"]
    is_cpu, total = mesh.devices.flat[0].platform == "cpu", 0.0
    for leaf in jax.tree.leaves(residuals):
        if leaf.size % ROW_PRIME == 0:
            is_split = not split_sizes.isdisjoint(leaf.shape)
            in_float32 = is_cpu and leaf.dtype == jnp.bfloat16
            itemsize = 4 if in_float32 else leaf.dtype.itemsize
            count = leaf.size * itemsize / ROW_PRIME / shards
            total += count / mesh.shape["model"] if is_split else count
    return int(total * run.data.batch_size / batch_size)


def _pull_back(
    model: Any,
    loss: Loss | MixedLoss,
    options: LossOptions,
    params: Any,
    variables: Any,
    batch: Any,
) -> Any:
    """Return the function of the backward pass, a tree whose leaves are what it reads."""

    def compute_sums(params: Any) -> Any:
        return loss.compute_batch(
            model,
            params,
            batch,
            train=True,
            dropout_key=jax.random.key(0),
            options=options,
            variables=variables,
        ).sums

    return jax.vjp(compute_sums, params)[1]


def find_model_dims(params: Any, mesh: Mesh | AbstractMesh) -> set[int]:
    """Return the sizes of the dimensions that the sharding rules split over the axis `model`."""
    return {
        size
        for keys, leaf in jax.tree_util.tree_leaves_with_path(params)
        for dim, size in zip(find_dimension_names(format_path(keys), leaf.shape), leaf.shape)
        if MESH_AXES[dim] == "model" and size % mesh.shape["model"] == 0
    }
