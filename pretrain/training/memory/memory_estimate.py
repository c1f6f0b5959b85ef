"""The estimate of a run's memory on each device, from abstract shapes alone."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from data.mixed import map_shapes
from pretrain.mesh.sharding import make_batch_sharding, make_state_shardings
from pretrain.training import flops
from pretrain.training.memory.byte_counts import (
    count_carried_gradients,
    count_gradients,
    count_held_bytes,
    count_residuals,
)
from pretrain.training.memory.device_memory import format_bytes
from pretrain.training.program import Program, make_program

if TYPE_CHECKING:
    from jax.sharding import AbstractMesh, Mesh

    from pretrain.config import Run


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
