"""Read a compiled program's text: which instructions run, how often, and what they move.

XLA's own cost analysis counts the body of a loop once; here every computation is counted as often
as it runs. The text of a compiled program is scheduled: instructions are listed in the order in
which they run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from pretrain.plan.hlo_parser import Array, Instruction, parse_instruction

# Instructions that move nothing through memory.
FREE = {
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
}
FREE |= {"replica-id", "opt-barrier", "iota", "domain"}
# Inside a fused computation these do not access memory themselves.
VIEWS = {"bitcast", "copy", "convert", "reshape", "transpose"}
# Targets of custom calls that only mark something for the compiler.
MARKERS = (
    "AllocateBuffer",
    "ConcatBitcast",
    "AsyncCollectiveStart",
    "AsyncCollectiveDone",
    "AssumeGatherIndicesInBound",
)


class Module:
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
    def times(self) -> dict[str, int]:
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
                    (body,) = instruction.calls("body")
                    (condition,) = instruction.calls("condition")
                    pending.append((body, count * self.trips(instruction, condition)))
                elif instruction.opcode in ("call", "async-start"):
                    called = instruction.calls("to_apply") + instruction.calls("calls")
                    pending += [(computation, count) for computation in called]
                elif instruction.opcode == "conditional":
                    # The branch that runs is unknown: all are counted, which is an upper bound.
                    branches = (
                        instruction.calls("branch_computations")
                        + instruction.calls("true_computation")
                        + instruction.calls("false_computation")
                    )
                    pending += [(computation, count) for computation in branches]
        return times

    def trips(self, loop: Instruction, condition: str) -> int:
        """Return the number of iterations of a loop.

        The compiler's known trip count, or else the largest constant in the loop's condition.
        """
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        instructions = list(self.computations[condition])
        for instruction in list(instructions):
            for called in instruction.calls("calls"):
                instructions += self.computations.get(called, ())
        constants = [
            int(instruction.argument)
            for instruction in instructions
            if instruction.opcode == "constant" and instruction.argument.isdigit()
        ]
        return max(constants, default=1)

    @cached_property
    def callers(self) -> dict[str, tuple[str, Instruction]]:
        """Return {fused computation: (the computation that calls it, the calling instruction)}."""
        return {
            called: (name, instruction)
            for name, instructions in self.computations.items()
            for instruction in instructions
            if instruction.opcode in ("fusion", "async-start", "call")
            for called in instruction.calls("calls")
        }

    def runs(self, computation: str) -> int:
        """Return how often a computation runs; a fused one runs as often as its caller."""
        visited = set()
        while (
            computation not in self.times
            and computation in self.callers
            and computation not in visited
        ):
            visited.add(computation)
            computation = self.callers[computation][0]
        return self.times.get(computation, 0)

    def memory_bytes(self) -> float:
        """Return the bytes that one run of the program, as scheduled, reads and writes in HBM.

        Data that stays in memories on the chip is not counted.
        """
        return sum(
            count * sum(self._moved(instruction, name) for instruction in self.computations[name])
            for name, count in self.times.items()
        )

    @cached_property
    def _shapes(self) -> dict[str, dict[str, Instruction]]:
        """Return {computation: {name: instruction}}."""
        return {
            name: {instruction.name: instruction for instruction in instructions}
            for name, instructions in self.computations.items()
        }

    def _moved(self, instruction: Instruction, computation: str) -> float:
        """Return the bytes that one execution of an instruction reads and writes in HBM."""
        if instruction.opcode in FREE or instruction.opcode.endswith("-done"):
            return 0
        if instruction.opcode == "custom-call" and re.search(
            rf'custom_call_target="({"|".join(MARKERS)})"', instruction.attributes
        ):
            return 0
        known = self._shapes[computation]
        operands = [known[name] for name in instruction.operands if name in known]
        # The further arrays of a "-start" repeat its operands.
        is_start = instruction.opcode.endswith("-start")
        outputs = instruction.arrays[:1] if is_start else instruction.arrays
        if instruction.opcode == "fusion":
            (called,) = instruction.calls("calls")
            read_bytes = sum(self._read(called, i, operand) for i, operand in enumerate(operands))
            return read_bytes + self._written(called, outputs)
        if instruction.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * _hbm(outputs)
        if instruction.opcode == "dynamic-update-slice":
            return 2 * _hbm(operands[1].arrays) if len(operands) > 1 else 0
        return sum(_hbm(operand.arrays) for operand in operands) + _hbm(outputs)

    def _read(self, computation: str, index: int, operand: Instruction) -> float:
        """Return the bytes that a fused computation reads of an operand.

        The whole operand, or only the slices that the computation takes of it.

        Args:
          index: the position of the operand among the computation's parameters.
        """
        whole = _hbm(operand.arrays)
        views, total = set(), 0
        for instruction in self.computations.get(computation, ()):
            if instruction.opcode == "parameter" and instruction.argument == str(index):
                views.add(instruction.name)
            elif views.isdisjoint(instruction.operands):
                continue
            elif self._is_view(instruction):
                views.add(instruction.name)
            elif (
                instruction.opcode in ("dynamic-slice", "slice", "gather")
                and instruction.operands[0] in views
            ):
                total += sum(array.bytes for array in instruction.arrays)
            elif instruction.opcode == "dynamic-update-slice" and instruction.operands[0] in views:
                continue  # updated in place
            elif instruction.opcode == "fusion":
                (called,) = instruction.calls("calls")
                inner = next(i for i, name in enumerate(instruction.operands) if name in views)
                total += self._read(called, inner, operand)
            else:
                return whole
        return min(total, whole) if views and whole else whole

    def _is_view(self, instruction: Instruction) -> bool:
        """Return whether a fused instruction only renames or maps its operand's elements."""
        if instruction.opcode in VIEWS:
            return True
        if instruction.opcode != "fusion":
            return False
        bodies = [self.computations.get(called, ()) for called in instruction.calls("calls")]
        return bool(bodies) and all(
            inner.opcode in VIEWS or inner.opcode == "parameter" for inner in bodies[0]
        )

    def _written(self, computation: str, outputs: Sequence[Array]) -> float:
        """Return the bytes that a fused computation writes.

        Its outputs, or for an output that is updated in place only the updated slice.
        """
        known = self._shapes.get(computation, {})
        roots: list[Instruction | None] = [node for node in known.values() if node.root]
        if roots and roots[0] is not None and roots[0].opcode == "tuple":
            roots = [known.get(name) for name in roots[0].operands]
        if len(roots) != len(outputs):
            roots = [None] * len(outputs)
        total = 0
        for array, root in zip(outputs, roots):
            while root is not None and self._is_view(root):
                root = known.get(root.operands[0])
            if array.space:
                continue
            if (
                root is not None
                and root.opcode == "dynamic-update-slice"
                and (update := known.get(root.operands[1]))
            ):
                total += sum(updated.bytes for updated in update.arrays)
            else:
                total += array.bytes
        return total


def _hbm(arrays: Sequence[Array]) -> float:
    """Return the bytes of the arrays that are in HBM."""
    return sum(array.bytes for array in arrays if not array.space)
