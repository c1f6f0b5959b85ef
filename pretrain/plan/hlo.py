"""Reads a compiled program's text: which instructions run, how often, what they move through memory and between devices.

XLA's own cost analysis counts the body of a loop once; here every computation is counted as often as it runs. The text of a compiled
program is scheduled: instructions stand in the order in which they run.
"""

import dataclasses
import math
import re
from functools import cached_property

WIDTH = {"pred": 1, "s4": 0.5, "u4": 0.5, "bf16": 2, "c64": 8, "c128": 16, "token": 0, "opaque": 0}
ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")
NAME = re.compile(r"%([\w.\-]+)")
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
VIEWS = {"bitcast", "copy", "convert", "reshape", "transpose"}  # inside of a fused computation
MARKERS = (
    "AllocateBuffer",
    "ConcatBitcast",
    "AsyncCollectiveStart",
    "AsyncCollectiveDone",
    "AssumeGatherIndicesInBound",
)  # custom calls


@dataclasses.dataclass(frozen=True)
class Array:
    """One array of a shape. space: the memory it lies in; 0 is HBM, others are on the chip."""

    dtype: str
    dims: tuple[int, ...]
    space: int

    @property
    def bytes(self):
        """Bytes of its elements, without padding to tiles."""
        width = WIDTH.get(self.dtype) or (
            int(digits[0]) / 8 if (digits := re.findall(r"\d+", self.dtype)) else 0
        )
        return math.prod(self.dims) * width


@dataclasses.dataclass
class Instruction:
    """One line: `%name = shape opcode(operands), attributes`."""

    name: str
    arrays: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    argument: str  # the text between the parentheses
    root: bool

    def calls(self, key):
        """The computations that the attribute `key` names."""
        found = re.search(rf"\b{key}=(?:\{{([^}}]*)\}}|%([\w.\-]+))", self.attributes)
        return NAME.findall(found[1] or "%" + (found[2] or "")) if found else []


class Module:
    """The computations of a compiled program by name, each a list of instructions in the order in which they run."""

    def __init__(self, text):
        self.computations, self.entry, current = {}, None, None
        for line in text.splitlines():
            if line.startswith("}"):
                current = None
            elif current is None:
                header = re.match(r"(ENTRY )?%?([\w.\-]+) \(", line)
                if header and line.rstrip().endswith("{"):
                    current = self.computations.setdefault(header[2], [])
                    self.entry = header[2] if header[1] else self.entry
            elif parsed := _parse(line):
                current.append(parsed)
        if self.entry is None:
            raise ValueError("the text has no ENTRY computation: not a compiled HLO module")

    @cached_property
    def times(self):
        """{computation: how often it runs in one run of the program}, for those that are scheduled (fused ones are not)."""
        times, waiting = {}, [(self.entry, 1)]
        while waiting:
            name, count = waiting.pop()
            times[name] = times.get(name, 0) + count
            for one in self.computations[name]:
                if one.opcode == "while":
                    (body,), (condition,) = one.calls("body"), one.calls("condition")
                    waiting.append((body, count * self.trips(one, condition)))
                elif one.opcode in ("call", "async-start"):
                    waiting += [
                        (called, count) for called in one.calls("to_apply") + one.calls("calls")
                    ]
                elif (
                    one.opcode == "conditional"
                ):  # whichever branch runs: all, which is too much rather than too little
                    branches = (
                        one.calls("branch_computations")
                        + one.calls("true_computation")
                        + one.calls("false_computation")
                    )
                    waiting += [(called, count) for called in branches]
        return times

    def trips(self, loop, condition):
        """How often a loop runs: what the compiler says, or the largest constant that its condition compares with."""
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        instructions = list(self.computations[condition])
        for one in list(instructions):
            for called in one.calls("calls"):
                instructions += self.computations.get(called, ())
        constants = [
            int(one.argument)
            for one in instructions
            if one.opcode == "constant" and one.argument.isdigit()
        ]
        return max(constants, default=1)

    @cached_property
    def callers(self):
        """{fused computation: (the computation that runs it, the instruction)}."""
        return {
            called: (name, one)
            for name, instructions in self.computations.items()
            for one in instructions
            if one.opcode in ("fusion", "async-start", "call")
            for called in one.calls("calls")
        }

    def runs(self, computation):
        """How often any computation runs, a fused one with its callers."""
        seen = set()
        while (
            computation not in self.times
            and computation in self.callers
            and computation not in seen
        ):
            seen.add(computation)
            computation = self.callers[computation][0]
        return self.times.get(computation, 0)

    def memory_bytes(self):
        """Bytes that one run of the program reads from and writes to HBM, as scheduled, whatever stays on the chip left out."""
        return sum(
            count * sum(self._moved(one, name) for one in self.computations[name])
            for name, count in self.times.items()
        )

    @cached_property
    def _shapes(self):
        return {
            name: {one.name: one for one in instructions}
            for name, instructions in self.computations.items()
        }

    def _moved(self, one, computation):
        if one.opcode in FREE or one.opcode.endswith("-done"):
            return 0
        if one.opcode == "custom-call" and re.search(
            rf'custom_call_target="({"|".join(MARKERS)})"', one.attributes
        ):
            return 0
        known = self._shapes[computation]
        operands = [known[name] for name in one.operands if name in known]
        outputs = (
            one.arrays[:1] if one.opcode.endswith("-start") else one.arrays
        )  # the rest repeats the operands
        if one.opcode == "fusion":
            (called,) = one.calls("calls")
            read = sum(self._read(called, i, operand) for i, operand in enumerate(operands))
            return read + self._written(called, outputs)
        if one.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * _hbm(outputs)
        if one.opcode == "dynamic-update-slice":
            return 2 * _hbm(operands[1].arrays) if len(operands) > 1 else 0
        return sum(_hbm(operand.arrays) for operand in operands) + _hbm(outputs)

    def _read(self, computation, index, operand):
        """Bytes that a fused computation reads of its operand: all, or the slices that it takes."""
        whole = _hbm(operand.arrays)
        views, total = set(), 0
        for one in self.computations.get(computation, ()):
            if one.opcode == "parameter" and one.argument == str(index):
                views.add(one.name)
            elif views.isdisjoint(one.operands):
                continue
            elif self._is_view(one):
                views.add(one.name)
            elif one.opcode in ("dynamic-slice", "slice", "gather") and one.operands[0] in views:
                total += sum(array.bytes for array in one.arrays)
            elif one.opcode == "dynamic-update-slice" and one.operands[0] in views:
                continue  # written in place
            elif one.opcode == "fusion":
                (called,) = one.calls("calls")
                total += self._read(
                    called, next(i for i, name in enumerate(one.operands) if name in views), operand
                )
            else:
                return whole
        return min(total, whole) if views and whole else whole

    def _is_view(self, one):
        """Whether a fused instruction only names its operand anew, or changes what is read of it element by element."""
        if one.opcode in VIEWS:
            return True
        inner = (
            [self.computations.get(called, ()) for called in one.calls("calls")]
            if one.opcode == "fusion"
            else []
        )
        return bool(inner) and all(
            part.opcode in VIEWS or part.opcode == "parameter" for part in inner[0]
        )

    def _written(self, computation, outputs):
        """Bytes that a fused computation writes: its outputs, or the slice that it puts into one in place."""
        known = self._shapes.get(computation, {})
        roots = [one for one in known.values() if one.root]
        if roots and roots[0].opcode == "tuple":
            roots = [known.get(name) for name in roots[0].operands]
        total = 0
        for array, root in zip(
            outputs, roots if len(roots) == len(outputs) else [None] * len(outputs)
        ):
            while root is not None and self._is_view(root):
                root = known.get(root.operands[0])
            if array.space:
                continue
            if (
                root is not None
                and root.opcode == "dynamic-update-slice"
                and (update := known.get(root.operands[1]))
            ):
                total += sum(part.bytes for part in update.arrays)
            else:
                total += array.bytes
        return total


def _hbm(arrays):
    return sum(array.bytes for array in arrays if not array.space)


def _parse(line):
    """The instruction of a line, or None."""
    start = re.match(r"\s+(ROOT )?%?([\w.\-]+) = ", line)
    if not start:
        return None
    rest = line[start.end() :]
    end = (
        _closing(rest, 0) + 1 if rest.startswith("(") else len(re.split(r"\s", rest, maxsplit=1)[0])
    )
    opcode = re.match(r"\s*([\w\-]+)\(", rest[end:])
    if not opcode:
        return None
    opened = end + opcode.end() - 1
    closed = _closing(rest, opened)
    argument = rest[opened + 1 : closed]
    return Instruction(
        name=start[2],
        arrays=tuple(_array(match) for match in ARRAY.finditer(rest[:end])),
        opcode=opcode[1],
        operands=tuple(NAME.findall(argument)),
        attributes=rest[closed + 1 :],
        argument=argument,
        root=bool(start[1]),
    )


def _closing(text, opened):
    """The place of the parenthesis that closes the one at `opened`."""
    depth = 0
    for place in range(opened, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    return len(text)


def _array(match):
    dtype, dims, layout = match.groups()
    space = re.search(r"S\((\d+)\)", layout or "")
    return Array(
        dtype, tuple(int(size) for size in dims.split(",") if size), int(space[1]) if space else 0
    )
