"""Every exchange between devices in a compiled program.

It lists each exchanged array, its size, how often and over which mesh axes it is exchanged, and
whether matmuls overlap with it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import jax
import numpy as np

from pretrain.mesh.sharding import get_slice_index
from pretrain.plan.hlo import ExchangePart, HloModule
from pretrain.plan.hlo_parser import Instruction

COLLECTIVE_KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Suffix of exchanges between slices. The compiler leaves them to the hosts: each chip sends its
# shard to its host and receives the result.
BETWEEN_SLICES = " between slices"


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange in the program text.

    Attributes:
      kind: one of `COLLECTIVE_KINDS`; with the suffix `BETWEEN_SLICES` between slices.
      bytes: size of the whole array (after a gather, before a scatter) of a group.
      dtype: HLO dtype of the array, such as "bf16".
      group: the devices of the first group, as indices into the mesh.
      axes: the mesh axes along which the group extends.
      overlapped: whether matmuls are scheduled between its start and its end.
      source: the operation of the model that it comes from.
      shape: shape of the array in the program text.
    """

    kind: str
    bytes: float
    dtype: str
    group: tuple[int, ...]
    axes: tuple[str, ...]
    count: int
    overlapped: bool
    source: str
    shape: tuple[int, ...]

    @property
    def sent_bytes(self) -> float:
        """Return the bytes that each device sends in one execution of the best ring algorithm.

        S (n - 1) / n for n devices and S bytes; twice that for an all-reduce.
        """
        share = 1 - 1 / len(self.group)
        factors = {"all-reduce": 2 * share, "collective-permute": 1.0}
        return factors.get(self.kind.removesuffix(BETWEEN_SLICES), share) * self.bytes

    @property
    def is_between_slices(self) -> bool:
        """Return whether the exchange is between slices."""
        return self.kind.endswith(BETWEEN_SLICES)


def find_collectives(module: HloModule, mesh: jax.sharding.Mesh) -> list[Collective]:
    """Return the exchanges of a module compiled for a mesh, the one that sends most first.

    An exchange that is spread over a chain of fusions counts at its start. A channel does not
    identify an exchange: all gathers of one `shard_map` share theirs.
    """
    found = []
    for name, instructions in module.computations.items():
        part = module.find_exchange_part(name)
        for instruction in instructions:
            if (
                instruction.opcode == "send"
                and "_xla_megascale_target" in instruction.attributes
                and module.count_runs(name)
            ):
                found.append(_parse_slice_exchange(module, name, instruction, mesh))
            kind = instruction.opcode.removesuffix("-start")
            if (
                kind in COLLECTIVE_KINDS
                and module.count_runs(name)
                and not (instruction.chain and part is ExchangePart.REST)
                and (exchange := _parse_collective(module, name, instruction, kind, mesh))
            ):
                found.append(exchange)
    return sorted(found, key=lambda exchange: -exchange.sent_bytes * exchange.count)


def _parse_collective(
    module: HloModule,
    computation: str,
    instruction: Instruction,
    kind: str,
    mesh: jax.sharding.Mesh,
) -> Collective | None:
    """Return the collective of an instruction; None if a device exchanges with itself only."""
    group = _parse_group(instruction.attributes, mesh.size, kind)
    if len(group) < 2:
        return None
    arrays = instruction.outputs
    size = sum(array.num_bytes for array in arrays)
    if kind == "reduce-scatter":
        size *= len(group)
    # The compiler's name for a reduction after which each device has one shard.
    if kind == "all-reduce" and "all-reduce-scatter" in computation:
        kind = "reduce-scatter"
    texts = [instruction.attributes]
    if computation in module.fusion_callers:
        texts.append(module.fusion_callers[computation][1].attributes)
    sources = [found[1] for text in texts if (found := re.search(r'op_name="([^"]*)"', text))]
    largest = max(arrays, key=lambda array: array.num_bytes)
    return Collective(
        kind=kind,
        bytes=size,
        dtype=largest.dtype,
        group=tuple(group),
        axes=_find_axes(group, mesh),
        count=module.count_runs(computation),
        overlapped=_is_overlapped(module, computation, instruction),
        source=sources[0] if sources else "",
        shape=largest.dims,
    )


def _parse_slice_exchange(
    module: HloModule, computation: str, instruction: Instruction, mesh: jax.sharding.Mesh
) -> Collective:
    """Return the collective of a `send` to the host, which exchanges it with other slices.

    The chip sends its shard of what its slice has already exchanged within itself.
    """
    match = re.search(r'_xla_host_transfer_rendezvous="([^"]*)"', instruction.attributes)
    assert match is not None, f"{instruction.name} has no rendezvous"
    rendezvous = match[1]
    reduces = "_xla_megascale_reduce_operation" in instruction.attributes
    first_of_slice = {
        get_slice_index(device): index
        for index, device in reversed(list(enumerate(mesh.devices.flat)))
    }
    group = tuple(sorted(first_of_slice.values()))
    size = instruction.arrays[0].num_bytes * (1 if reduces else len(group))
    op_name = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return Collective(
        kind=("all-reduce" if reduces else "all-gather") + BETWEEN_SLICES,
        bytes=size,
        dtype=instruction.arrays[0].dtype,
        group=group,
        axes=_find_axes(group, mesh),
        count=module.count_runs(computation),
        overlapped=_is_slice_exchange_overlapped(module, computation, instruction, rendezvous),
        source=op_name[1] if op_name else rendezvous,
        shape=instruction.arrays[0].dims,
    )


# ---- which devices -----------------------------------------------------------


def _parse_group(attributes: str, num_devices: int, kind: str) -> list[int]:
    """Return the devices of the first group, as indices into the program's list of devices."""
    if kind == "collective-permute":
        match = re.search(r"source_target_pairs=\{(\{[\d,{}]*\})\}", attributes)
        pairs = re.findall(r"\{(\d+),(\d+)\}", match[1]) if match else []
        return next(
            ([int(source), int(target)] for source, target in pairs if source != target), []
        )
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return [int(device) for device in match[1].split(",")]
    if match := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^)]*\)?)\))? \{([^}]*)\}", attributes
    ):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", match[1])}
        order = _expand_iota(match[2], num_devices) if match[2] else np.arange(num_devices)
        axes = re.findall(r"'(\w+)'", match[3])
        index = tuple(slice(None) if name in axes else 0 for name in sizes)
        return order.reshape(tuple(sizes.values()))[index].reshape(-1).tolist()
    if match := re.search(r"replica_groups=(\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)", attributes):
        shape, order = match[1].split("<=")
        rows = [int(size) for size in shape[1:-1].split(",")]
        return _expand_iota(order, num_devices).reshape(rows)[0].reshape(-1).tolist()
    return list(range(num_devices))  # {}: all


def _expand_iota(text: str, devices: int) -> np.ndarray:
    """Return the device order of HLO's iota notation, such as `[4,4]T(1,0)`.

    0, 1, 2 ... in the shape [4, 4], transposed by (1, 0) and flattened.
    """
    shape, _, order = text.strip("()").partition("T(")
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    if order:
        ids = ids.transpose([int(dim) for dim in re.findall(r"\d+", order)])
    return ids.reshape(-1)


def _find_axes(group: Sequence[int], mesh: jax.sharding.Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which the devices of a group extend."""
    coordinates = np.stack(np.unravel_index(group, mesh.devices.shape))
    return tuple(
        axis for axis, row in zip(mesh.axis_names, coordinates) if len(set(row.tolist())) > 1
    )


# ---- overlapped with computation or not --------------------------------------


def _is_overlapped(module: HloModule, computation: str, instruction: Instruction) -> bool:
    """Return whether matmuls run between the start and the end of an exchange."""
    if computation not in module.run_counts:
        # In a fused computation: one that starts the exchange, or that computes and continues it.
        return bool(instruction.chain) or _has_matmul(module, computation)
    if not instruction.opcode.endswith("-start"):
        return False
    instructions = module.computations[computation]
    start = next(i for i, other in enumerate(instructions) if other is instruction)
    done = f"{instruction.opcode[:-6]}-done"
    end = next(
        (
            i
            for i, other in enumerate(instructions)
            if other.opcode == done and instruction.name in other.operands
        ),
        start,
    )
    return any(_is_matmul(module, other) for other in instructions[start:end])


def _is_slice_exchange_overlapped(
    module: HloModule, computation: str, instruction: Instruction, rendezvous: str
) -> bool:
    """Return whether matmuls run between a send to the host and the end of its receive."""
    instructions = module.computations[computation]
    receives = {
        other.name
        for other in instructions
        if other.opcode == "recv" and f'"{rendezvous}"' in other.attributes
    }
    start = next(i for i, other in enumerate(instructions) if other is instruction)
    ends = [
        i
        for i, other in enumerate(instructions)
        if other.opcode == "recv-done" and receives.intersection(other.operands)
    ]
    end = max(ends, default=start)
    return any(_is_matmul(module, other) for other in instructions[start:end])


def _is_matmul(module: HloModule, instruction: Instruction) -> bool:
    """Return whether an instruction is a matmul or calls a computation that has one."""
    return instruction.opcode in ("dot", "convolution") or any(
        _has_matmul(module, called) for called in instruction.find_called("calls")
    )


def _has_matmul(module: HloModule, computation: str) -> bool:
    """Return whether a computation has a matmul."""
    return any(
        instruction.opcode in ("dot", "convolution")
        for instruction in module.computations.get(computation, ())
    )
