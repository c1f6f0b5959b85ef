"""Read a compiled program's text: which instructions run, and how often.

XLA's own cost analysis counts the body of a loop once; here every computation is counted as often
as it runs. The text of a compiled program is scheduled: instructions are listed in the order in
which they run.
"""

from __future__ import annotations

import re
from functools import cached_property

from pretrain.plan.hlo_parser import Instruction, parse_instruction


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

    @cached_property
    def named_instructions(self) -> dict[str, dict[str, Instruction]]:
        """Return {computation: {name: instruction}}."""
        return {
            name: {instruction.name: instruction for instruction in instructions}
            for name, instructions in self.computations.items()
        }
