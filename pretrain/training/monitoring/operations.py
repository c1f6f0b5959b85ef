"""The traced operations of a training step, by kind.

A trace has an event for each operation of the compiled program that ran. The name of the operation
in the program's text says which line of the model it is from.
"""

from __future__ import annotations

import collections
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

# The gradient of a matmul with a weight may end in its transposition.
MATMUL = r"(dot_general|cond/branch_0_fun/(transpose\(\)/)?transpose)$"
# kind -> pattern of the names of its operations; the first match counts.
KIND_PATTERNS = {
    "optimizer, clipping": re.compile(r"^jit\(step\)/(?!.*jvp)"),
    "attention: scores and sums": re.compile(r"b\w+,b\w+->b\w+\)?/(dot_general|transpose)$"),
    "words: product": re.compile(rf"\.attend/.*{MATMUL}"),
    "words: cross entropy": re.compile(r"logits|^jit\(step\)/(transpose\()?jvp\(\)|\.attend/"),
    "layers: products, forwards": re.compile(r"^(?!.*transpose\(jvp).*dot_general$"),
    "layers: products, backwards": re.compile(rf"transpose\(jvp.*{MATMUL}"),
    "attention: softmax, dropout, order of heads": re.compile(r"attention/|cross/"),
    "norms": re.compile(r"norm"),
    "feed-forward: activation, bias": re.compile(r"mlp/"),
    "embeddings": re.compile(r"embedding|word|position"),
    "residuals, dropout": re.compile(r"layer|encoder|decoder|stack"),
}
COPIES, OTHER = "copies between them", "other"
NUM_LONGEST = 20
# Their time is the time of the operations inside them.
WRAPPER_OPCODES = ("while", "call", "conditional")

# A GPU copies the slices of a scan over layers by operations that the program's text does not list.
COPIES_OF_SLICES = ("loop_dynamic_slice_fusion", "loop_dynamic_update_slice_fusion")


def classify_operation(instruction: str, name: str) -> str | None:
    """Return the kind of an instruction; None if it only contains others.

    Args:
      name: the name of the operation that it comes from, or "".
    """
    if instruction.startswith(WRAPPER_OPCODES):
        return None
    if not name:
        return COPIES if "copy" in instruction or "transpose" in instruction else OTHER
    return next((kind for kind, pattern in KIND_PATTERNS.items() if pattern.search(name)), OTHER)


def parse_operations(text: str) -> dict[str, str]:
    """Return {instruction: name of its operation, or ""} of a compiled program's text."""
    names = {}
    for line in text.splitlines():
        if match := re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = ", line):
            name = re.search(r'op_name="([^"]*)"', line)
            names[match[1]] = name[1] if name else ""
    return names


def read_trace(folder: str | os.PathLike[str]) -> dict[str, float]:
    """Return {instruction: seconds} of the events in a trace, added over devices and threads.

    A trace of an accelerator has its events in planes of devices; then the host's events, which
    starts the same instructions, do not count. An event on a GPU has the name of its kernel, and
    the instruction as its `hlo_op`.
    """
    from jax.profiler import ProfileData

    on_host: dict[str, float] = collections.defaultdict(float)
    on_device: dict[str, float] = collections.defaultdict(float)
    for path in pathlib.Path(folder).rglob("*.xplane.pb"):
        for plane in ProfileData.from_file(str(path)).planes:
            times = on_device if plane.name.startswith("/device:") else on_host
            for line in plane.lines:
                for event in line.events:
                    name = event.name.split(" ")[0].lstrip("%")
                    if plane.name.startswith("/device:GPU"):
                        name = str(dict(event.stats).get("hlo_op", name))
                    times[name] += event.duration_ns / 1e9
    return dict(on_device or on_host)


def sum_kinds(times: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    """Return {kind: seconds} of the traced instructions of a program.

    Args:
      names: as `parse_operations` returns them.
    """
    kinds: dict[str, float] = collections.defaultdict(float)
    for instruction, seconds in times.items():
        if instruction in names and (kind := classify_operation(instruction, names[instruction])):
            kinds[kind] += seconds
        elif instruction not in names and instruction.startswith(COPIES_OF_SLICES):
            kinds[COPIES] += seconds
    return dict(kinds)


def format_operations(
    times: Mapping[str, float], names: Mapping[str, str], num_steps: int, steps: str
) -> str:
    """Return a page with the time of each kind of operation, and of the longest operations.

    Args:
      names: as `parse_operations` returns them.
      num_steps: the number of traced steps.
    """
    kinds = sum_kinds(times, names)
    total = sum(kinds.values())
    lines = [f"# Operations of the training step, steps {steps}", ""]
    if not total:
        return "\n".join(
            [
                *lines,
                f"None of the {len(times)} kinds of events in the trace has the name of an "
                "operation of the training step: XLA does not name its events here. The trace "
                "itself is complete.",
                "",
            ]
        )
    unnamed = sum(
        seconds
        for instruction, seconds in times.items()
        if names.get(instruction) == "" and classify_operation(instruction, "") == OTHER
    )
    lines += [
        f"{num_steps} steps. Times are added over devices and threads, and a trace slows short "
        "operations down: compare the shares.",
        f"{unnamed / total:.1%} of the time is of operations that XLA made without naming the line "
        f'of the model; they are in "{OTHER}".',
        "",
        *format_rows(
            ("kind", "ms a step", "share"),
            [
                (kind, f"{1000 * seconds / num_steps:.3f}", f"{seconds / total:.1%}")
                for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1])
            ],
        ),
        "",
        f"The {NUM_LONGEST} operations that take longest:",
        "",
    ]
    rows = []
    for instruction, seconds in sorted(times.items(), key=lambda item: -item[1]):
        name = names.get(instruction)
        if name is not None and (kind := classify_operation(instruction, name)):
            milliseconds = f"{1000 * seconds / num_steps:.3f}"
            rows.append((instruction, kind, milliseconds, f"{seconds / total:.1%}", name))
    header = ("operation", "kind", "ms a step", "share", "line of the model")
    return "\n".join([*lines, *format_rows(header, rows[:NUM_LONGEST]), ""])


def format_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; a bar in a cell is escaped."""
    lines = [header, ("---",) * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines]
