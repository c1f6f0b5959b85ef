"""What a compiled step computes, moves and sends.

The text of a compiled program shows the arrays of a Pallas kernel, but not how often it reads each
block: that follows from the jaxpr.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from pretrain.kernels.pair_scopes import read_computed_share
from pretrain.plan.collectives import Collective, find_collectives
from pretrain.plan.hbm_traffic import count_memory_bytes, count_on_chip_kernel_bytes
from pretrain.plan.hlo import HloModule
from pretrain.plan.hlo_parser import Instruction
from pretrain.training.flops import count_flops, sum_equations, sum_inside

if TYPE_CHECKING:
    import jax

    from pretrain.plan.topology import Machine

ELEMENTWISE_PRIMITIVES = {
    *("add", "sub", "mul", "div", "rem", "max", "min", "pow", "integer_pow", "neg", "abs", "sign"),
    *("exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "erf", "sqrt", "rsqrt"),
    *("sin", "cos", "floor", "ceil", "round", "square", "clamp", "select_n", "is_finite"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not"),
    *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
}
REDUCTION_PRIMITIVES = {"reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"}


def count_kernel_bytes(jaxpr: Any) -> float:
    """Return the bytes that all kernels of a program copy from and to HBM, on all devices.

    A kernel copies a block of an array in, or out, whenever its grid comes to another block of it.
    """

    def count_bytes(equation: Any, scope: str) -> Fraction | None:
        if equation.primitive.name != "pallas_call":
            return None
        grid_mapping = equation.params["grid_mapping"]
        share = read_computed_share(scope)
        # The scalars that the maps of the indices read.
        scalars = equation.invars[: grid_mapping.num_index_operands]
        return sum(
            (
                count_block_copies(mapping, grid_mapping.grid, share)
                * _count_array_bytes(mapping.transformed_block_aval)
                for mapping in grid_mapping.block_mappings
            ),
            Fraction(sum(_count_array_bytes(scalar.aval) for scalar in scalars)),
        )

    return float(sum_equations(jaxpr, count_bytes))


def count_kernel_operations(jaxpr: Any) -> float:
    """Return the elementwise operations of all kernels of a program, on all devices."""

    def count_operations(equation: Any, _: str) -> Fraction | None:
        name = equation.primitive.name
        if name in ELEMENTWISE_PRIMITIVES:
            return Fraction(math.prod(equation.outvars[0].aval.shape))
        if name in REDUCTION_PRIMITIVES:
            return Fraction(math.prod(equation.invars[0].aval.shape))
        return None

    def count_kernel(equation: Any, scope: str) -> Fraction | None:
        if equation.primitive.name != "pallas_call":
            return None
        return sum_inside(equation, count_operations, scope)

    return float(sum_equations(jaxpr, count_kernel))


def count_block_copies(mapping: Any, grid: tuple[int, ...], computed_share: Fraction) -> Fraction:
    """Return how often a kernel copies a block of one of its arrays.

    The grid runs in row-major order, the last dimension the fastest. So the block changes with each
    step of the last dimension that the map of its index reads, and with those before it.

    Args:
      computed_share: share of the grid's blocks that a mask leaves. A map that reads the mask's
        scalars skips the others.
    """
    jaxpr = mapping.index_map_jaxpr.jaxpr
    used, reads_scalars = _find_used_inputs(jaxpr)
    moving = [dim for dim, steps in enumerate(grid) if dim in used and steps > 1]
    copies = Fraction(math.prod(grid[: moving[-1] + 1]) if moving else 1)
    return copies * computed_share if reads_scalars else copies


def _find_used_inputs(jaxpr: Any) -> tuple[set[int], bool]:
    """Return the inputs that the outputs of an index map depend on, and whether it reads arrays."""
    inputs_of = {variable: {index} for index, variable in enumerate(jaxpr.invars)}
    reads_scalars = False
    for equation in jaxpr.eqns:
        reads_scalars = reads_scalars or equation.primitive.name == "get"
        used = set().union(*(_look_up(inputs_of, variable) for variable in equation.invars))
        inputs_of |= dict.fromkeys(equation.outvars, used)
    return set().union(
        *(_look_up(inputs_of, variable) for variable in jaxpr.outvars)
    ), reads_scalars


def _look_up(inputs_of: dict[Any, set[int]], variable: Any) -> set[int]:
    """Return the inputs that a variable depends on; none for a literal."""
    return set() if hasattr(variable, "val") else inputs_of.get(variable, set())


def _count_array_bytes(aval: Any) -> int:
    """Return the bytes of an array or of a reference to one."""
    return math.prod(aval.shape) * aval.dtype.itemsize


# One operation for each element of the result. Casts and copies are not among them: the units that
# load and store do some of those.
ELEMENTWISE_OPCODES = {
    *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power"),
    *("negate", "abs", "sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even"),
    *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "erf"),
    *("sqrt", "rsqrt", "cbrt", "sine", "cosine", "tan", "atan2"),
    *("compare", "select", "clamp", "is-finite", "and", "or", "xor", "not"),
    *("shift-left", "shift-right-logical", "shift-right-arithmetic"),
    *("popcnt", "count-leading-zeros"),
}


def count_vector_operations(module: HloModule) -> float:
    """Return the elementwise operations of one run of the program on each device.

    A reduction has one for each element of its operands. The inside of custom calls is not counted.
    """
    return sum(
        runs
        * sum(
            _count_operations(instruction, module.named_instructions[name])
            for instruction in instructions
        )
        for name, instructions in module.computations.items()
        if (runs := module.count_runs(name))
    )


def _count_operations(instruction: Instruction, known: dict[str, Instruction]) -> int:
    """Return the operations of one execution of an instruction.

    Args:
      known: the instructions of its computation, by name.
    """
    if instruction.opcode in ELEMENTWISE_OPCODES:
        return math.prod(instruction.arrays[0].dims)
    if instruction.opcode == "reduce":
        num_arrays = len(instruction.arrays)  # operands, then as many initial values
        return sum(
            math.prod(known[name].arrays[0].dims)
            for name in instruction.operands[:num_arrays]
            if name in known
        )
    return 0


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
