"""The accelerator types of Google's TPUs: the one table for `pod`'s requests and manifests.

Sources, read 2026-11-26: Google's page "TPU software versions" names the runtime images; the table
of XPK 1.16 (`xpk.core.system_characteristics`) has the topologies, hosts and labels of GKE, and
tests/pretrain/pod/test_manifest_tools.py compares this table with it.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import NamedTuple

CHIPS_PER_HOST = 4  # of a slice of several hosts
HAS_ONE_CHIP = ("v5litepod", "v6e", "tpu7x")  # generations with a slice of one chip


class TpuGeneration(NamedTuple):
    """The slices of one TPU generation.

    Attributes:
      runtime: image of the workers of a queued resource; "" if there is none.
      count_per_chip: what the number in a type counts: 2 TensorCores of a chip, or 1 chip.
      num_sides: number of sides of a topology.
      max_chips: number of chips of the largest slice.
      gke_accelerator: value of GKE's label of the node pool; "" if no manifest is known.
    """

    runtime: str
    count_per_chip: int
    num_sides: int
    max_chips: int
    gke_accelerator: str


GENERATIONS = {
    "v2": TpuGeneration("tpu-ubuntu2204-base", 2, 2, 256, ""),
    "v3": TpuGeneration("tpu-ubuntu2204-base", 2, 2, 1024, ""),
    "v4": TpuGeneration("tpu-ubuntu2204-base", 2, 3, 4096, "tpu-v4-podslice"),
    "v5litepod": TpuGeneration("v2-alpha-tpuv5-lite", 1, 2, 256, "tpu-v5-lite-podslice"),
    "v5p": TpuGeneration("v2-alpha-tpuv5", 2, 3, 6144, "tpu-v5p-slice"),
    "v6e": TpuGeneration("v2-alpha-tpuv6e", 1, 2, 256, "tpu-v6e-slice"),
    "tpu7x": TpuGeneration("", 2, 3, 9216, "tpu7x"),
}
RUNTIMES = {name: row.runtime for name, row in GENERATIONS.items() if row.runtime}


class TpuSlice(NamedTuple):
    """One slice.

    Attributes:
      type: accelerator type, such as "v5p-32".
      generation: a key of GENERATIONS.
      topology: chips along each side, such as "2x2x4".
      num_hosts: number of hosts.
      chips_per_host: number of chips of each host.
    """

    type: str
    generation: str
    topology: str
    num_hosts: int
    chips_per_host: int


def parse_type(type_name: str, topology: str | None = None) -> TpuSlice:
    """Return the slice that an accelerator type names.

    Args:
      topology: chips along each side; by default the type's, where there is only one.

    Raises:
      ValueError: if there is no such type, or the topology does not have its number of chips.
    """
    generation, num_chips = count_chips(type_name)
    return TpuSlice(
        type_name,
        generation,
        topology_of(type_name, num_chips, GENERATIONS[generation].num_sides, topology),
        max(1, num_chips // CHIPS_PER_HOST),
        min(num_chips, CHIPS_PER_HOST),
    )


def count_chips(type_name: str) -> tuple[str, int]:
    """Return the generation of an accelerator type and the number of chips of its slice.

    Raises:
      ValueError: if there is no such type.
    """
    found = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]{0,4})", type_name)
    generation = GENERATIONS.get(found[1]) if found else None
    if not found or not generation:
        known = ", ".join(f"{name}-N" for name in GENERATIONS)
        raise ValueError(
            f"--type {type_name}: no such accelerator type{suggest_type(type_name)}; known types "
            f"are {known}"
        )
    num_chips, rest = divmod(int(found[2]), generation.count_per_chip)
    sizes = range(CHIPS_PER_HOST, generation.max_chips + 1, CHIPS_PER_HOST)
    if rest or not (num_chips in sizes or (num_chips == 1 and found[1] in HAS_ONE_CHIP)):
        unit = "chips" if generation.count_per_chip == 1 else "TensorCores, two a chip"
        one = "one chip or " if found[1] in HAS_ONE_CHIP else ""
        raise ValueError(
            f"--type {type_name}: the number counts {unit}, and a slice of {found[1]} has {one}a "
            f"multiple of {CHIPS_PER_HOST} chips, {generation.max_chips} at most"
        )
    return found[1], num_chips


def suggest_type(type_name: str) -> str:
    """Return `: did you mean TYPE?` for a misspelt accelerator type, or "" if none is near.

    People say v5e for v5litepod, and leave out the hyphen.
    """
    found = re.fullmatch(r"([a-z]+[0-9]+[a-z]*)[-_ ]?([0-9]*)", type_name.lower())
    if not found:
        return ""
    name = {"v5e": "v5litepod", "v5lite": "v5litepod"}.get(found[1], found[1])
    near = difflib.get_close_matches(name, GENERATIONS, n=1, cutoff=0.65)
    return f": did you mean {near[0]}-{found[2] or 'N'}?" if near else ""


def topology_of(type_name: str, num_chips: int, num_sides: int, topology: str | None) -> str:
    """Return the topology of a slice, checked or chosen.

    A number of chips that is a power of two has one usual topology, whose sides differ by a factor
    of two at most. For other numbers there are several, so that it must be given.
    """
    if topology:
        sides = [int(side) for side in re.findall(r"[0-9]+", topology)]
        is_shape = re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*)+", topology)
        if not is_shape or len(sides) != num_sides or math.prod(sides) != num_chips:
            raise ValueError(
                f"--topology {topology}: {type_name} has {num_chips} chips, along {num_sides} sides"
            )
        return topology
    if num_chips & (num_chips - 1):
        raise ValueError(
            f"--type {type_name}: {num_chips} chips have several topologies; give yours, such as "
            f"--topology {'x'.join(['4'] * (num_sides - 1))}x{num_chips // 4 ** (num_sides - 1)}"
        )
    # The exponents of two, as even as possible. Three sides of one host are 2x2x1.
    exponent = num_chips.bit_length() - 1
    if num_sides == 3 and exponent == 2:
        return "2x2x1"
    powers = [(exponent + place) // num_sides for place in range(num_sides)]
    return "x".join(str(2**power) for power in powers)
