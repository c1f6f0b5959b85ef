"""Every exchange between devices in a compiled program: what, how large, how often, over which mesh axes, hidden or not."""

import dataclasses
import math
import re

import numpy as np

from pretrain.distributed.sharding import slice_of

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
BETWEEN = " between slices"  # which the compiler leaves to the hosts: each chip hands its part over, and receives what it became


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange as the program text has it.

    bytes: of the whole array, gathered or before it is scattered, that a group shares; group: the devices of one group, by their place
    in the mesh; axes: the mesh axes along which they lie; count: how often it runs in one step; overlapped: whether matmuls are scheduled between its start and its end;
    source: where in the model it comes from.
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
    def sent(self):
        """Bytes that each device sends in one run by the best ring: S (n - 1) / n, twice for a reduction that all receive."""
        share = 1 - 1 / len(self.group)
        return {"all-reduce": 2 * share, "collective-permute": 1.0}.get(
            self.kind.removesuffix(BETWEEN), share
        ) * self.bytes

    @property
    def between_slices(self):
        return self.kind.endswith(BETWEEN)


def collectives(module, mesh):
    """[Collective] of an `hlo.Module` compiled for a `jax.sharding.Mesh`, the costliest first.

    One exchange can stand in several fused computations that each do a part of it: they share a channel and are counted once.
    """
    found = {}
    for name, instructions in module.computations.items():
        for one in instructions:
            if (
                one.opcode == "send"
                and "_xla_megascale_target" in one.attributes
                and module.runs(name)
            ):
                found["send", name, one.name] = _read_between(module, name, one, mesh)
            kind = one.opcode.removesuffix("-start")
            if kind not in KINDS or not module.runs(name):
                continue
            channel = re.search(r"channel_id=(\d+)", one.attributes)
            key = (kind, channel[1] if channel else f"{name}/{one.name}")
            seen = _read(module, name, one, kind, mesh)
            if seen is None:
                continue
            if key in found:
                seen = dataclasses.replace(
                    seen,
                    count=max(seen.count, found[key].count),
                    overlapped=seen.overlapped or found[key].overlapped,
                )
            found[key] = seen
    return sorted(found.values(), key=lambda one: -one.sent * one.count)


def _read(module, computation, one, kind, mesh):
    groups = _group(one.attributes, mesh.size, kind)
    if len(groups) < 2:
        return None  # with itself
    arrays = one.arrays
    if one.opcode.endswith("-start") and len(arrays) > 1:  # (operands, results, ...)
        arrays = (max(arrays, key=lambda array: array.bytes),)
    size = sum(array.bytes for array in arrays)
    if kind == "reduce-scatter":
        size *= len(groups)
    if (
        kind == "all-reduce" and "all-reduce-scatter" in computation
    ):  # the compiler's name for a reduction of which each keeps a part
        kind = "reduce-scatter"
    texts = [one.attributes] + (
        [module.callers[computation][1].attributes] if computation in module.callers else []
    )
    sources = [found[1] for text in texts if (found := re.search(r'op_name="([^"]*)"', text))]
    largest = max(arrays, key=lambda array: array.bytes)
    return Collective(
        kind=kind,
        bytes=size,
        dtype=largest.dtype,
        group=tuple(groups),
        axes=_axes(groups, mesh),
        count=module.runs(computation),
        overlapped=_overlapped(module, computation, one),
        source=sources[0] if sources else "",
        shape=largest.dims,
    )


def _read_between(module, computation, one, mesh):
    """What one chip of each slice hands to its host: the part that is its own of what its slice has exchanged already."""
    named = re.search(r'_xla_host_transfer_rendezvous="([^"]*)"', one.attributes)
    assert named is not None  # the caller has found it there
    rendezvous = named[1]
    reduces = "_xla_megascale_reduce_operation" in one.attributes
    first = {
        slice_of(device): place for place, device in reversed(list(enumerate(mesh.devices.flat)))
    }
    group = tuple(sorted(first.values()))
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


def _group(attributes, devices, kind):
    """The devices of the first group, by their place in the program's order of devices."""
    if kind == "collective-permute":
        listed = re.search(r"source_target_pairs=\{(\{[\d,{}]*\})\}", attributes)
        pairs = re.findall(r"\{(\d+),(\d+)\}", listed[1]) if listed else []
        return next(
            ([int(source), int(target)] for source, target in pairs if source != target), []
        )
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return [int(device) for device in listed[1].split(",")]
    if named := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^)]*\)?)\))? \{([^}]*)\}", attributes
    ):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", named[1])}
        order = _iota(named[2], devices) if named[2] else np.arange(devices)
        chosen = re.findall(r"'(\w+)'", named[3])
        index = tuple(slice(None) if name in chosen else 0 for name in sizes)
        return order.reshape(tuple(sizes.values()))[index].reshape(-1).tolist()
    if tiled := re.search(r"replica_groups=(\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)", attributes):
        shape, order = tiled[1].split("<=")
        rows = [int(size) for size in shape[1:-1].split(",")]
        return _iota(order, devices).reshape(rows)[0].reshape(-1).tolist()
    return list(range(devices))  # {}: all


def _iota(text, devices):
    """`[4,4]T(1,0)`: 0, 1, 2 ... in that shape, its dimensions in that order, flattened."""
    shape, _, order = text.strip("()").partition("T(")
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return (
        ids.transpose([int(dim) for dim in re.findall(r"\d+", order)]) if order else ids
    ).reshape(-1)


def _axes(group, mesh):
    """The mesh axes along which the devices of a group lie."""
    places = np.stack(np.unravel_index(group, mesh.devices.shape))
    return tuple(axis for axis, row in zip(mesh.axis_names, places) if len(set(row.tolist())) > 1)


# ---- hidden behind computation or not ----------------------------------------


def _overlapped(module, computation, one):
    """Whether matmuls run between the beginning and the end of an exchange."""
    if (
        computation not in module.times
    ):  # inside of a fused step: started by one, carried on by those that compute as well
        return "chain_id=" in one.attributes or _computes(module, computation)
    if not one.opcode.endswith("-start"):
        return False
    instructions = module.computations[computation]
    begun = next(i for i, other in enumerate(instructions) if other is one)
    ended = next(
        (
            i
            for i, other in enumerate(instructions)
            if other.opcode == f"{one.opcode[:-6]}-done" and one.name in other.operands
        ),
        begun,
    )
    return any(_is_matmul(module, other) for other in instructions[begun:ended])


def _overlapped_between(module, computation, one, rendezvous):
    """Whether matmuls run between what a chip hands over and the end of what it receives in return."""
    instructions = module.computations[computation]
    received = {
        other.name
        for other in instructions
        if other.opcode == "recv" and f'"{rendezvous}"' in other.attributes
    }
    begun = next(i for i, other in enumerate(instructions) if other is one)
    ends = [
        i
        for i, other in enumerate(instructions)
        if other.opcode == "recv-done" and received.intersection(other.operands)
    ]
    return any(
        _is_matmul(module, other) for other in instructions[begun : max(ends, default=begun)]
    )


def _is_matmul(module, one):
    return one.opcode in ("dot", "convolution") or any(
        _computes(module, called) for called in one.calls("calls")
    )


def _computes(module, computation):
    return any(
        one.opcode in ("dot", "convolution") for one in module.computations.get(computation, ())
    )
