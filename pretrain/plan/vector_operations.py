"""Count the elementwise operations of a compiled program, from its text."""

from __future__ import annotations

import math

from pretrain.plan.hlo import HloModule
from pretrain.plan.hlo_parser import Instruction

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
