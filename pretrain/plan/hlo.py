"""Read a compiled program's text: which instructions run, and how often.

XLA's own cost analysis counts the body of a loop once; here every computation is counted as often
as it runs. The text of a compiled program is scheduled: instructions are listed in the order in
which they run.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from functools import cached_property

from pretrain.plan.hlo_parser import INSTRUCTION_PATTERN, Instruction, parse_instruction

HEADER_PATTERN = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
END_PATTERN = re.compile(r"\}(, execution_thread=.*)?\s*")


class ExchangePart(enum.Enum):
    """Which part of an exchange between devices a fused computation has.

    The compiler hides an exchange by a chain of fusions: one starts it, some continue it during
    their own work, one ends it. The text of each has the whole exchange, and all hand on the same
    buffers, so the exchange counts in its start alone.
    """

    NONE, START, REST = range(3)


class HloModule:
    """A compiled program: its computations by name, each a list of instructions in run order.

    Raises:
      ValueError: if the text is not a compiled HLO module.
    """

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[Instruction]] = {}
        entry: str | None = None
        instructions: list[Instruction] | None = None
        for line in _join_lines(text):
            if END_PATTERN.fullmatch(line):
                instructions = None
            elif instructions is None:
                if header := _match_header(line):
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

    def find_exchange_part(self, computation: str) -> ExchangePart:
        """Return which part of an exchange a fused computation has."""
        instructions = self.computations.get(computation, ())
        if not any(instruction.chain for instruction in instructions):
            return ExchangePart.NONE
        is_start = any(
            '"AsyncCollectiveStart"' in instruction.attributes for instruction in instructions
        )
        return ExchangePart.START if is_start else ExchangePart.REST

    @cached_property
    def named_instructions(self) -> dict[str, dict[str, Instruction]]:
        """Return {computation: {name: instruction}}."""
        return {
            name: {instruction.name: instruction for instruction in instructions}
            for name, instructions in self.computations.items()
        }


def _match_header(line: str) -> re.Match[str] | None:
    """Return the match of a computation's first line: whether it is the entry, and its name."""
    return HEADER_PATTERN.match(line) if line.rstrip().endswith("{") else None


def _join_lines(text: str) -> Iterator[str]:
    """Yield the lines of a program, each instruction as one.

    The attributes of a Pallas kernel may have line breaks, and a brace at the start of a line.
    """
    statement, is_inside = "", False
    for line in text.splitlines():
        is_end = END_PATTERN.fullmatch(line) is not None
        if is_inside and not is_end and not INSTRUCTION_PATTERN.match(line):
            statement += line
            continue
        yield statement
        statement, is_inside = line, not is_end and (is_inside or bool(_match_header(line)))
    yield statement
