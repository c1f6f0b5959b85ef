"""Read a compiled program's text: which instructions run, how often, and what they move.

XLA's own cost analysis counts the body of a loop once; here every computation is counted as often
as it runs. The text of a compiled program is scheduled: instructions are listed in the order in
which they run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from pretrain.plan.hlo_parser import HloArray, Instruction, parse_instruction

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
# These read a slice of their first operand, at any offset.
SLICE_OPCODES = {"dynamic-slice", "slice", "gather"}
# Targets of custom calls that only mark something for the compiler.
MARKER_TARGETS = (
    "AllocateBuffer",
    "ConcatBitcast",
    "AsyncCollectiveStart",
    "AsyncCollectiveDone",
    "AssumeGatherIndicesInBound",
)


class HloModule:
    """A compiled program: its computations by name, each a list of instructions in run order.

    Raises:
      ValueError: if the text is not a compiled HLO module.
    """

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[Instruction]] = {}
        entry: str | None = None
        instructions: list[Instruction] | None = None
        for line in text.splitlines():
            if line.startswith("}"):
                instructions = None
            elif instructions is None:
                header = re.match(r"(ENTRY )?%?([\w.\-]+) \(", line)
                if header and line.rstrip().endswith("{"):
                    instructions = self.computations.setdefault(header[2], [])
                    entry = header[2] if header[1] else entry
            elif parsed := parse_instruction(line):
                instructions.append(parsed)
        if entry is None:
            raise ValueError("the text is not a compiled HLO module: it has no ENTRY computation")
        self.entry = entry

    @cached_property
    def run_counts(self) -> dict[str, int]:
        """Return {computation: executions in one run of the program}.

        Only scheduled computations are listed; fused ones are not.
        """
        times: dict[str, int] = {}
        pending = [(self.entry, 1)]
        while pending:
            name, count = pending.pop()
            times[name] = times.get(name, 0) + count
            for instruction in self.computations[name]:
                if instruction.opcode == "while":
                    (body,) = instruction.find_called("body")
                    (condition,) = instruction.find_called("condition")
                    pending.append((body, count * self.count_trips(instruction, condition)))
                elif instruction.opcode in ("call", "async-start"):
                    called = instruction.find_called("to_apply") + instruction.find_called("calls")
                    pending += [(computation, count) for computation in called]
                elif instruction.opcode == "conditional":
                    # The branch that runs is unknown: all are counted, which is an upper bound.
                    branches = (
                        instruction.find_called("branch_computations")
                        + instruction.find_called("true_computation")
                        + instruction.find_called("false_computation")
                    )
                    pending += [(computation, count) for computation in branches]
        return times

    def count_trips(self, loop: Instruction, condition: str) -> int:
        """Return the number of iterations of a loop.

        The compiler's known trip count, or else the largest constant in the loop's condition.
        """
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        instructions = list(self.computations[condition])
        for instruction in list(instructions):
            for called in instruction.find_called("calls"):
                instructions += self.computations.get(called, ())
        constants = [
            int(instruction.argument)
            for instruction in instructions
            if instruction.opcode == "constant" and instruction.argument.isdigit()
        ]
        return max(constants, default=1)

    @cached_property
    def fusion_callers(self) -> dict[str, tuple[str, Instruction]]:
        """Return {fused computation: (the computation that calls it, the calling instruction)}."""
        return {
            called: (name, instruction)
            for name, instructions in self.computations.items()
            for instruction in instructions
            if instruction.opcode in ("fusion", "async-start", "call")
            for called in instruction.find_called("calls")
        }

    def count_runs(self, computation: str) -> int:
        """Return how often a computation runs; a fused one runs as often as its caller."""
        visited = set()
        while (
            computation not in self.run_counts
            and computation in self.fusion_callers
            and computation not in visited
        ):
            visited.add(computation)
            computation = self.fusion_callers[computation][0]
        return self.run_counts.get(computation, 0)

    def count_memory_bytes(self) -> float:
        """Return the bytes that one run of the program, as scheduled, reads and writes in HBM.

        Data that stays in memories on the chip is not counted.
        """
        return sum(
            count
            * sum(
                self._count_moved_bytes(instruction, name)
                for instruction in self.computations[name]
            )
            for name, count in self.run_counts.items()
        )

    @cached_property
    def _named_instructions(self) -> dict[str, dict[str, Instruction]]:
        """Return {computation: {name: instruction}}."""
        return {
            name: {instruction.name: instruction for instruction in instructions}
            for name, instructions in self.computations.items()
        }

    def _count_moved_bytes(self, instruction: Instruction, computation: str) -> float:
        """Return the bytes that one execution of an instruction reads and writes in HBM."""
        if instruction.opcode in FREE_OPCODES or instruction.opcode.endswith("-done"):
            return 0
        if instruction.opcode == "custom-call" and re.search(
            rf'custom_call_target="({"|".join(MARKER_TARGETS)})"', instruction.attributes
        ):
            return 0
        if self._is_prefetched_before(instruction, computation):
            return 0
        known = self._named_instructions[computation]
        operands = [known[name] for name in instruction.operands if name in known]
        # The further arrays of a "-start" repeat its operands.
        is_start = instruction.opcode.endswith("-start")
        outputs = instruction.arrays[:1] if is_start else instruction.arrays
        if instruction.opcode == "fusion":
            (called,) = instruction.find_called("calls")
            read_bytes = sum(
                self._count_read_bytes(called, i, operand) for i, operand in enumerate(operands)
            )
            return read_bytes + self._count_written_bytes(called, outputs)
        opcode = instruction.opcode.removesuffix("-start")
        if opcode in SLICE_OPCODES and operands:
            return _count_slice_bytes(instruction, operands)
        if opcode == "dynamic-update-slice" and len(operands) > 1:
            update = operands[1].arrays
            written = 0 if operands[0].arrays[0].memory_space else _count_bytes(update)
            return _count_hbm_bytes(update) + written
        return sum(_count_hbm_bytes(operand.arrays) for operand in operands) + _count_hbm_bytes(
            outputs
        )

    def _is_prefetched_before(self, instruction: Instruction, computation: str) -> bool:
        """Return whether the run before has already copied an argument to a memory on the chip.

        The compiler lets a program end with a copy that only its next run uses, and begin with the
        same copy, which runs only the first time.
        """
        if "cross_program_prefetch_index" not in instruction.attributes:
            return False
        instructions = self.computations[computation]
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

    def _count_read_bytes(self, computation: str, index: int, operand: Instruction) -> float:
        """Return the bytes that a fused computation reads of an operand.

        The whole operand, or only the slices that the computation takes of it.

        Args:
          index: the position of the operand among the computation's parameters.
        """
        whole = _count_hbm_bytes(operand.arrays)
        views, total = set(), 0
        for instruction in self.computations.get(computation, ()):
            if instruction.opcode == "parameter" and instruction.argument == str(index):
                views.add(instruction.name)
            elif views.isdisjoint(instruction.operands):
                continue
            elif self._is_view(instruction):
                views.add(instruction.name)
            elif instruction.opcode in SLICE_OPCODES and instruction.operands[0] in views:
                total += _count_bytes(instruction.arrays)
            elif instruction.opcode == "dynamic-update-slice" and instruction.operands[0] in views:
                continue  # updated in place
            elif instruction.opcode == "fusion":
                (called,) = instruction.find_called("calls")
                inner = next(i for i, name in enumerate(instruction.operands) if name in views)
                total += self._count_read_bytes(called, inner, operand)
            else:
                return whole
        return min(total, whole) if views and whole else whole

    def _is_view(self, instruction: Instruction) -> bool:
        """Return whether a fused instruction only renames or maps its operand's elements."""
        if instruction.opcode in VIEW_OPCODES:
            return True
        if instruction.opcode != "fusion":
            return False
        bodies = [self.computations.get(called, ()) for called in instruction.find_called("calls")]
        return bool(bodies) and all(
            inner.opcode in VIEW_OPCODES or inner.opcode == "parameter" for inner in bodies[0]
        )

    def _count_written_bytes(self, computation: str, outputs: Sequence[HloArray]) -> float:
        """Return the bytes that a fused computation writes.

        Its outputs, or for an output that is updated in place only the updated slice.
        """
        known = self._named_instructions.get(computation, {})
        roots: list[Instruction | None] = [node for node in known.values() if node.is_root]
        if roots and roots[0] is not None and roots[0].opcode == "tuple":
            roots = [known.get(name) for name in roots[0].operands]
        if len(roots) != len(outputs):
            roots = [None] * len(outputs)
        total = 0
        for array, root in zip(outputs, roots):
            while root is not None and self._is_view(root):
                root = known.get(root.operands[0])
            if array.memory_space:
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
    """Return the bytes that a slice or a gather moves: the slice, in and out, and its offsets.

    The shape of a "-start" is ((operands), slice, context).
    """
    is_start = instruction.opcode.endswith("-start")
    taken = instruction.arrays[-2:-1] if is_start else instruction.arrays
    read = 0 if operands[0].arrays[0].memory_space else _count_bytes(taken)
    offsets = sum(_count_hbm_bytes(operand.arrays) for operand in operands[1:])
    return read + offsets + _count_hbm_bytes(taken)


def _count_bytes(arrays: Sequence[HloArray]) -> float:
    """Return the bytes of the arrays, wherever they are."""
    return sum(array.num_bytes for array in arrays)


def _count_hbm_bytes(arrays: Sequence[HloArray]) -> float:
    """Return the bytes of the arrays that are in HBM."""
    return sum(array.num_bytes for array in arrays if not array.memory_space)
