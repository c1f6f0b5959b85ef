"""Count what the Pallas kernels of a program move through HBM and compute, from its jaxpr.

The text of a compiled program shows a kernel's arrays, but not how often it reads each block.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from pretrain.kernels.pair_scopes import read_computed_share
from pretrain.training.flops import sum_equations, sum_inside

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
