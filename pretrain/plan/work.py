"""What a compiled step computes, moves and sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pretrain.plan.collectives import Collective, find_collectives
from pretrain.plan.hbm_traffic import count_memory_bytes, count_on_chip_kernel_bytes
from pretrain.plan.hlo import HloModule
from pretrain.plan.pallas_calls import count_kernel_bytes, count_kernel_operations
from pretrain.plan.vector_operations import count_vector_operations
from pretrain.training.flops import count_flops

if TYPE_CHECKING:
    import jax

    from pretrain.plan.topology import Machine


class Work(NamedTuple):
    """What a compiled step does.

    Attributes:
      tiled_flops: FLOPs of its matmuls on all devices, their sizes rounded up to the matrix unit's.
      vector_operations: elementwise operations on one device.
      memory_bytes: bytes that one device moves through HBM.
    """

    tiled_flops: int
    vector_operations: float
    memory_bytes: float
    exchanges: list[Collective]


def count_work(module: HloModule, jaxpr: Any, mesh: jax.sharding.Mesh, machine: Machine) -> Work:
    """Return what a compiled step does.

    Args:
      jaxpr: of the same step; it shows what the kernels in the program do.
    """
    kernel_bytes = count_kernel_bytes(jaxpr) / mesh.size - count_on_chip_kernel_bytes(module)
    return Work(
        count_flops(jaxpr, matrix_unit=machine.chip.matrix_unit if machine.chip else 1),
        count_vector_operations(module) + count_kernel_operations(jaxpr) / mesh.size,
        count_memory_bytes(module) + max(kernel_bytes, 0.0),
        find_collectives(module, mesh),
    )
