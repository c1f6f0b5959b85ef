"""Parse one line of a compiled program's text, such as `%sum = f32[8]{0} add(%x, %y)`."""

from __future__ import annotations

import dataclasses
import math
import re

# Bytes of an element where the digits of the dtype's name do not give its bits.
DTYPE_BYTES = {
    "pred": 1,
    "s4": 0.5,
    "u4": 0.5,
    "bf16": 2,
    "c64": 8,
    "c128": 16,
    "token": 0,
    "opaque": 0,
}
# These read a slice of their first operand, at any offset.
SLICE_OPCODES = {"dynamic-slice", "slice", "gather"}
ARRAY_PATTERN = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")
INSTRUCTION_PATTERN = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
NAME_PATTERN = re.compile(r"%([\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class HloArray:
    """One array of an instruction's shape.

    Attributes:
      memory_space: the memory that holds it: 0 is HBM, others are on the chip.
    """

    dtype: str
    dims: tuple[int, ...]
    memory_space: int

    @property
    def num_bytes(self) -> float:
        """The bytes of its elements, without padding to tiles."""
        width = DTYPE_BYTES.get(self.dtype) or (
            int(digits[0]) / 8 if (digits := re.findall(r"\d+", self.dtype)) else 0
        )
        return math.prod(self.dims) * width


@dataclasses.dataclass
class Instruction:
    """One line: `%name = shape opcode(operands), attributes`.

    Attributes:
      arrays: the arrays of the shape; several for a tuple.
      operands: names of the instructions that it reads.
      argument: the text between the parentheses, such as a parameter's number.
      attributes: the text after the parentheses.
      is_root: whether it is the result of its computation.
    """

    name: str
    arrays: tuple[HloArray, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    argument: str
    is_root: bool

    @property
    def outputs(self) -> tuple[HloArray, ...]:
        """The arrays that it writes.

        The shape of a "-start" has more: (result, operand, context) of a copy, ((operands),
        results, contexts) of all others but a reduction.
        """
        opcode = self.opcode.removesuffix("-start")
        if opcode == self.opcode or opcode == "all-reduce":
            return self.arrays
        if opcode == "copy":
            return self.arrays[:1]
        num_operands = len(self.operands)
        num_results = 1 if opcode in SLICE_OPCODES else num_operands
        return self.arrays[num_operands : num_operands + num_results]

    @property
    def chain(self) -> str:
        """The name of the chain of fusions that an exchange is spread over, or ""."""
        found = re.search(r'\bchain_id="(\w+)"', self.attributes)
        return found[1] if found else ""

    def find_called(self, key: str) -> list[str]:
        """Return the names of the computations in the attribute `key`."""
        found = re.search(rf"\b{key}=(?:\{{([^}}]*)\}}|%([\w.\-]+))", self.attributes)
        return NAME_PATTERN.findall(found[1] or "%" + (found[2] or "")) if found else []


def parse_instruction(line: str) -> Instruction | None:
    """Return the instruction of a line, or None if the line has none."""
    start = INSTRUCTION_PATTERN.match(line)
    if not start:
        return None
    rest = line[start.end() :]
    if rest.startswith("("):
        shape_end = _find_closing(rest, 0) + 1
    else:
        shape_end = len(re.split(r"\s", rest, maxsplit=1)[0])
    opcode = re.match(r"\s*([\w\-]+)\(", rest[shape_end:])
    if not opcode:
        return None
    opened = shape_end + opcode.end() - 1
    closed = _find_closing(rest, opened)
    argument = rest[opened + 1 : closed]
    return Instruction(
        name=start[2],
        arrays=tuple(_make_array(match) for match in ARRAY_PATTERN.finditer(rest[:shape_end])),
        opcode=opcode[1],
        operands=tuple(NAME_PATTERN.findall(argument)),
        attributes=rest[closed + 1 :],
        argument=argument,
        is_root=bool(start[1]),
    )


def _find_closing(text: str, opened: int) -> int:
    """Return the index of the parenthesis that closes the one at index `opened`."""
    depth = 0
    for index in range(opened, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if not depth:
            return index
    return len(text)


def _make_array(match: re.Match[str]) -> HloArray:
    """Return the array that a match of `ARRAY_PATTERN` describes."""
    dtype, dims, layout = match.groups()
    space = re.search(r"S\((\d+)\)", layout or "")
    return HloArray(
        dtype, tuple(int(size) for size in dims.split(",") if size), int(space[1]) if space else 0
    )
