"""Count the bytes that a compiled program moves through HBM, from its text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pretrain.plan.hlo import ExchangePart, HloModule
from pretrain.plan.hlo_parser import SLICE_OPCODES, HloArray, Instruction

# Instructions that move nothing through memory.
FREE_OPCODES = {
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "while",
    "conditional",
    "call",
    "async-start",  # what it runs is counted in the computation that it calls
    "after-all",
    "partition-id",
}
FREE_OPCODES |= {"replica-id", "opt-barrier", "iota", "domain"}
# Inside a fused computation these do not access memory themselves.
VIEW_OPCODES = {"bitcast", "copy", "convert", "reshape", "transpose"}
KERNEL_TARGET = 'custom_call_target="tpu_custom_call"'
# Targets of custom calls that only mark something for the compiler, and of Pallas kernels, which
# `count_kernel_bytes` counts.
UNCOUNTED_TARGETS = (
    "tpu_custom_call",
    "AllocateBuffer",
    "ConcatBitcast",
    "AsyncCollectiveStart",
    "AsyncCollectiveDone",
    "AssumeGatherIndicesInBound",
)


def count_memory_bytes(module: HloModule) -> float:
    """Return the bytes that one run of the program, as scheduled, reads and writes in HBM.

    Data that stays in memories on the chip is not counted, and neither are Pallas kernels.
    """
    return sum(
        count
        * sum(
            _count_moved_bytes(module, instruction, name)
            for instruction in module.computations[name]
        )
        for name, count in module.run_counts.items()
    )


def count_on_chip_kernel_bytes(module: HloModule) -> float:
    """Return the bytes of the arrays of Pallas kernels that one run of the program has on the chip.

    A kernel copies their blocks from or to a memory that is not HBM.
    """
    total = 0.0
    for name, count in module.run_counts.items():
        known = module.named_instructions[name]
        for instruction in module.computations[name]:
            if instruction.opcode == "custom-call" and KERNEL_TARGET in instruction.attributes:
                operands = [known[operand] for operand in instruction.operands if operand in known]
                arrays = [array for operand in operands for array in operand.arrays[:1]]
                arrays += instruction.outputs
                total += count * (_count_bytes(arrays) - _count_hbm_bytes(arrays))
    return total


def _count_moved_bytes(module: HloModule, instruction: Instruction, computation: str) -> float:
    """Return the bytes that one execution of an instruction reads and writes in HBM."""
    if instruction.opcode in FREE_OPCODES or instruction.opcode.endswith("-done"):
        return 0
    if instruction.opcode == "custom-call" and re.search(
        rf'custom_call_target="({"|".join(UNCOUNTED_TARGETS)})"', instruction.attributes
    ):
        return 0
    if _is_prefetched_before(module, instruction, computation):
        return 0
    known = module.named_instructions[computation]
    operands = [known[name] for name in instruction.operands if name in known]
    outputs = instruction.outputs
    if instruction.opcode == "fusion":
        (called,) = instruction.find_called("calls")
        read_bytes = sum(
            _count_read_bytes(module, called, i, operand) for i, operand in enumerate(operands)
        )
        return read_bytes + _count_written_bytes(module, called, outputs)
    opcode = instruction.opcode.removesuffix("-start")
    if opcode in SLICE_OPCODES and operands:
        return _count_slice_bytes(instruction, operands)
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        update = operands[1].arrays
        written = 0 if operands[0].arrays[0].memory_space else _count_bytes(update)
        return _count_hbm_bytes(update) + written
    return sum(_count_hbm_bytes(operand.arrays) for operand in operands) + _count_hbm_bytes(outputs)


def _is_prefetched_before(module: HloModule, instruction: Instruction, computation: str) -> bool:
    """Return whether the run before has already copied an argument to a memory on the chip.

    The compiler lets a program end with a copy that only its next run uses, and begin with the
    same copy, which runs only the first time.
    """
    if "cross_program_prefetch_index" not in instruction.attributes:
        return False
    instructions = module.computations[computation]
    used = {name for other in instructions for name in other.operands}
    unused = {
        other.operands[0]
        for other in instructions
        if other.opcode == "copy-done" and other.name not in used and not other.is_root
    }
    return any(
        other.opcode == "copy-start"
        and other.name in unused
        and other.operands == instruction.operands
        for other in instructions
    )


def _is_handed_on(instruction: Instruction, part: ExchangePart) -> bool:
    """Return whether an instruction of a part of an exchange only hands its operands on."""
    if part is ExchangePart.NONE:
        return False
    return instruction.opcode in ("tuple", "custom-call") or (
        part is ExchangePart.REST and bool(instruction.chain)
    )


def _count_read_bytes(
    module: HloModule, computation: str, index: int, operand: Instruction
) -> float:
    """Return the bytes that a fused computation reads of an operand.

    The whole operand, or only the slices that the computation takes of it. An exchange reads its
    operand in the part that starts it.
    """
    whole = _count_hbm_bytes(operand.arrays)
    views, total = set(), 0
    part = module.find_exchange_part(computation)
    for instruction in module.computations.get(computation, ()):
        if instruction.opcode == "parameter" and instruction.argument == str(index):
            views.add(instruction.name)
        elif views.isdisjoint(instruction.operands) or _is_handed_on(instruction, part):
            continue
        elif _is_view(module, instruction):
            if instruction.is_root:
                return whole
            views.add(instruction.name)
        elif instruction.opcode in SLICE_OPCODES and instruction.operands[0] in views:
            total += _count_bytes(instruction.arrays)
        elif instruction.opcode == "dynamic-update-slice" and instruction.operands[0] in views:
            continue  # updated in place
        elif instruction.opcode == "fusion":
            (called,) = instruction.find_called("calls")
            inner = next(i for i, name in enumerate(instruction.operands) if name in views)
            total += _count_read_bytes(module, called, inner, operand)
        else:
            return whole
    return min(total, whole) if views and whole else whole


def _is_view(module: HloModule, instruction: Instruction) -> bool:
    """Return whether a fused instruction only renames or maps its operand's elements."""
    if instruction.opcode in VIEW_OPCODES:
        return True
    if instruction.opcode != "fusion":
        return False
    bodies = [module.computations.get(called, ()) for called in instruction.find_called("calls")]
    return bool(bodies) and all(
        inner.opcode in VIEW_OPCODES or inner.opcode == "parameter" for inner in bodies[0]
    )


def _count_written_bytes(module: HloModule, computation: str, outputs: Sequence[HloArray]) -> float:
    """Return the bytes that a fused computation writes.

    Its outputs, or for an output that is updated in place only the updated slice. The result of an
    exchange is written in the part that starts it.
    """
    part = module.find_exchange_part(computation)
    if part is ExchangePart.START:
        # The outputs are the operands of the exchange, its results and flags.
        exchanges = [exchange for exchange in module.computations[computation] if exchange.chain]
        num_operands = sum(len(exchange.operands) for exchange in exchanges)
        num_results = sum(len(exchange.arrays) for exchange in exchanges)
        return _count_hbm_bytes(outputs[num_operands : num_operands + num_results])
    known = module.named_instructions.get(computation, {})
    roots: list[Instruction | None] = [node for node in known.values() if node.is_root]
    if roots and roots[0] is not None and roots[0].opcode == "tuple":
        roots = [known.get(name) for name in roots[0].operands]
    if len(roots) != len(outputs):
        roots = [None] * len(outputs)
    total = 0
    for array, root in zip(outputs, roots):
        while root is not None and _is_view(module, root):
            root = known.get(root.operands[0])
        if array.memory_space:
            continue
        if (
            part is ExchangePart.REST
            and root is not None
            and (root.chain or root.opcode in ("parameter", "custom-call"))
        ):
            continue
        if (
            root is not None
            and root.opcode == "dynamic-update-slice"
            and (update := known.get(root.operands[1]))
        ):
            total += _count_bytes(update.arrays)
        else:
            total += array.num_bytes
    return total


def _count_slice_bytes(instruction: Instruction, operands: Sequence[Instruction]) -> float:
    """Return the bytes that a slice or a gather moves: the slice, in and out, and its offsets."""
    taken = instruction.outputs
    read = 0 if operands[0].arrays[0].memory_space else _count_bytes(taken)
    offsets = sum(_count_hbm_bytes(operand.arrays) for operand in operands[1:])
    return read + offsets + _count_hbm_bytes(taken)


def _count_bytes(arrays: Sequence[HloArray]) -> float:
    """Return the bytes of the arrays, wherever they are."""
    return sum(array.num_bytes for array in arrays)


def _count_hbm_bytes(arrays: Sequence[HloArray]) -> float:
    """Return the bytes of the arrays that are in HBM."""
    return sum(array.num_bytes for array in arrays if not array.memory_space)
