"""Every exchange between devices in a compiled program.

What is exchanged, its size, how often, over which mesh axes, and whether matmuls overlap with it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import jax
import numpy as np

from pretrain.distributed.sharding import slice_of
from pretrain.plan.hlo import Module
from pretrain.plan.hlo_parser import Instruction

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Suffix of exchanges between slices. The compiler leaves them to the hosts: each chip sends its
# shard to its host and receives the result.
BETWEEN = " between slices"


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange in the program text.

    Attributes:
      kind: one of `COLLECTIVE_KINDS`; with the suffix `BETWEEN_SLICES` between slices.
      bytes: size of the whole array (after a gather, before a scatter) of a group.
      dtype: HLO dtype of the array, such as "bf16".
      group: the devices of the first group, as indices into the mesh.
      axes: the mesh axes along which the group extends.
      count: executions in one step.
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
    def sent(self) -> float:
        """Return the bytes that each device sends in one execution of the best ring algorithm.

        S (n - 1) / n for n devices and S bytes; twice that for an all-reduce.
        """
        share = 1 - 1 / len(self.group)
        factors = {"all-reduce": 2 * share, "collective-permute": 1.0}
        return factors.get(self.kind.removesuffix(BETWEEN), share) * self.bytes

    @property
    def between_slices(self) -> bool:
        """Return whether the exchange is between slices."""
        return self.kind.endswith(BETWEEN)


def collectives(module: Module, mesh: jax.sharding.Mesh) -> list[Collective]:
    """Return the exchanges of a module compiled for a mesh, the one that sends most first.

    One exchange can be in several fused computations, each of which does a part of it: they share
    a channel and are counted once.
    """
    found = {}
    for name, instructions in module.computations.items():
        for instruction in instructions:
            if (
                instruction.opcode == "send"
                and "_xla_megascale_target" in instruction.attributes
                and module.runs(name)
            ):
                found["send", name, instruction.name] = _read_between(
                    module, name, instruction, mesh
                )
            kind = instruction.opcode.removesuffix("-start")
            if kind not in KINDS or not module.runs(name):
                continue
            channel = re.search(r"channel_id=(\d+)", instruction.attributes)
            key = (kind, channel[1] if channel else f"{name}/{instruction.name}")
            exchange = _read(module, name, instruction, kind, mesh)
            if exchange is None:
                continue
            if key in found:
                exchange = dataclasses.replace(
                    exchange,
                    count=max(exchange.count, found[key].count),
                    overlapped=exchange.overlapped or found[key].overlapped,
                )
            found[key] = exchange
    return sorted(found.values(), key=lambda exchange: -exchange.sent * exchange.count)


def _read(
    module: Module, computation: str, one: Instruction, kind: str, mesh: jax.sharding.Mesh
) -> Collective | None:
    """Return the collective of an instruction; None if a device exchanges with itself only."""
    group = _group(one.attributes, mesh.size, kind)
    if len(group) < 2:
        return None
    arrays = one.arrays
    if one.opcode.endswith("-start") and len(arrays) > 1:  # (operands, results, ...)
        arrays = (max(arrays, key=lambda array: array.bytes),)
    size = sum(array.bytes for array in arrays)
    if kind == "reduce-scatter":
        size *= len(group)
    # The compiler's name for a reduction after which each device has one shard.
    if kind == "all-reduce" and "all-reduce-scatter" in computation:
        kind = "reduce-scatter"
    texts = [one.attributes]
    if computation in module.callers:
        texts.append(module.callers[computation][1].attributes)
    sources = [found[1] for text in texts if (found := re.search(r'op_name="([^"]*)"', text))]
    largest = max(arrays, key=lambda array: array.bytes)
    return Collective(
        kind=kind,
        bytes=size,
        dtype=largest.dtype,
        group=tuple(group),
        axes=_axes(group, mesh),
        count=module.runs(computation),
        overlapped=_overlapped(module, computation, one),
        source=sources[0] if sources else "",
        shape=largest.dims,
    )


def _read_between(
    module: Module, computation: str, one: Instruction, mesh: jax.sharding.Mesh
) -> Collective:
    """Return the collective of a `send` to the host, which exchanges it with other slices.

    The chip sends its shard of what its slice has already exchanged within itself.
    """
    match = re.search(r'_xla_host_transfer_rendezvous="([^"]*)"', one.attributes)
    assert match is not None, f"{one.name} has no rendezvous"
    rendezvous = match[1]
    reduces = "_xla_megascale_reduce_operation" in one.attributes
    first_of_slice = {
        slice_of(device): index for index, device in reversed(list(enumerate(mesh.devices.flat)))
    }
    group = tuple(sorted(first_of_slice.values()))
    size = one.arrays[0].bytes * (1 if reduces else len(group))
    source = re.search(r'op_name="([^"]*)"', one.attributes)
    return Collective(
        kind=("all-reduce" if reduces else "all-gather") + BETWEEN,
        bytes=size,
        dtype=one.arrays[0].dtype,
        group=group,
        axes=_axes(group, mesh),
        count=module.runs(computation),
        overlapped=_overlapped_between(module, computation, one, rendezvous),
        source=source[1] if source else rendezvous,
        shape=one.arrays[0].dims,
    )


# ---- which devices -----------------------------------------------------------


def _group(attributes: str, devices: int, kind: str) -> list[int]:
    """Return the devices of the first group, as indices into the program's list of devices.

    Args:
      num_devices: number of devices of the program.
    """
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
        order = _iota(match[2], devices) if match[2] else np.arange(devices)
        axes = re.findall(r"'(\w+)'", match[3])
        index = tuple(slice(None) if name in axes else 0 for name in sizes)
        return order.reshape(tuple(sizes.values()))[index].reshape(-1).tolist()
    if match := re.search(r"replica_groups=(\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)", attributes):
        shape, order = match[1].split("<=")
        rows = [int(size) for size in shape[1:-1].split(",")]
        return _iota(order, devices).reshape(rows)[0].reshape(-1).tolist()
    return list(range(devices))  # {}: all


def _iota(text: str, devices: int) -> np.ndarray:
    """Return the device order of HLO's iota notation, such as `[4,4]T(1,0)`.

    0, 1, 2 ... in the shape [4, 4], transposed by (1, 0) and flattened.
    """
    shape, _, order = text.strip("()").partition("T(")
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    if order:
        ids = ids.transpose([int(dim) for dim in re.findall(r"\d+", order)])
    return ids.reshape(-1)


def _axes(group: Sequence[int], mesh: jax.sharding.Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which the devices of a group extend."""
    coordinates = np.stack(np.unravel_index(group, mesh.devices.shape))
    return tuple(
        axis for axis, row in zip(mesh.axis_names, coordinates) if len(set(row.tolist())) > 1
    )


# ---- overlapped with computation or not --------------------------------------


def _overlapped(module: Module, computation: str, one: Instruction) -> bool:
    """Return whether matmuls run between the start and the end of an exchange."""
    if computation not in module.times:
        # In a fused computation: one that starts the exchange, or that computes and continues it.
        return "chain_id=" in one.attributes or _computes(module, computation)
    if not one.opcode.endswith("-start"):
        return False
    instructions = module.computations[computation]
    start = next(i for i, other in enumerate(instructions) if other is one)
    done = f"{one.opcode[:-6]}-done"
    end = next(
        (
            i
            for i, other in enumerate(instructions)
            if other.opcode == done and one.name in other.operands
        ),
        start,
    )
    return any(_is_matmul(module, other) for other in instructions[start:end])


def _overlapped_between(
    module: Module, computation: str, one: Instruction, rendezvous: str
) -> bool:
    """Return whether matmuls run between a send to the host and the end of its receive."""
    instructions = module.computations[computation]
    receives = {
        other.name
        for other in instructions
        if other.opcode == "recv" and f'"{rendezvous}"' in other.attributes
    }
    start = next(i for i, other in enumerate(instructions) if other is one)
    ends = [
        i
        for i, other in enumerate(instructions)
        if other.opcode == "recv-done" and receives.intersection(other.operands)
    ]
    end = max(ends, default=start)
    return any(_is_matmul(module, other) for other in instructions[start:end])


def _is_matmul(module: Module, one: Instruction) -> bool:
    """Return whether an instruction is a matmul or calls a computation that has one."""
    return one.opcode in ("dot", "convolution") or any(
        _computes(module, called) for called in one.calls("calls")
    )


def _computes(module: Module, computation: str) -> bool:
    """Return whether a computation has a matmul."""
    return any(
        instruction.opcode in ("dot", "convolution")
        for instruction in module.computations.get(computation, ())
    )
