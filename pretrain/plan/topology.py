"""Machines that are not here: the devices of a TPU slice as its compiler describes them, or fake CPU devices."""

import math
import os
import re
import tempfile
from typing import NamedTuple

from pretrain.extras import how_to_install
from pretrain.overrides import ConfigError
from pretrain.training.accelerators import CHIPS, GIB


class Family(NamedTuple):
    """sides: of a slice; most: chips of the largest; ring: a side of so many chips, or a multiple, is closed to a ring; usable: bytes of
    HBM that the compiler leaves to a program (libtpu 0.0.42, measured); options: what makes it show devices as JAX does on the machine.
    """

    sides: int
    most: int
    ring: int
    usable: float
    options: dict


FAMILIES = {
    "v4": Family(3, 4096, 4, 30.75 * GIB, {"chip_config_name": "megacore"}),
    "v5e": Family(2, 256, 16, 15.75 * GIB, {}),
    "v5p": Family(3, 6144, 4, 95.74 * GIB, {}),
    "v6e": Family(2, 256, 16, 31.25 * GIB, {}),
}
EXAMPLES = (
    "v4:2x2x1 to v4:8x8x16, v5e:1x1 to v5e:16x16, v5p:2x2x1 to v5p:16x16x24, v6e:1x1 to v6e:16x16"
)


class Machine(NamedTuple):
    """name: as it was asked for; devices: in the order that JAX lists them; slices: how many, a slower network between them."""

    name: str
    devices: list
    slices: int = 1

    @property
    def kind(self):
        """jax's device_kind."""
        return self.devices[0].device_kind

    @property
    def chip(self):
        """Its published figures, or None."""
        return CHIPS.get(self.kind)

    @property
    def family(self):
        """Its `Family`; None for CPU devices."""
        return FAMILIES.get(self.name.partition(":")[0])

    @property
    def sides(self):
        """Chips along each side of a slice: (4, 4, 4); () for CPU devices."""
        return (
            tuple(int(side) for side in self.name.partition(":")[2].split("x"))
            if self.family
            else ()
        )


def prepare():
    """Settings that libtpu and XLA read once, as they are loaded: for a process that plans and does nothing else."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed
    os.environ.setdefault(
        "TPU_SKIP_MDS_QUERY", "1"
    )  # no question to a metadata server that is not there
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")  # likewise
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault(
        "ALLOW_MULTIPLE_LIBTPU_LOAD", "1"
    )  # its lock is for chips; two plans may run side by side
    os.environ.setdefault("TPU_LOG_DIR", os.path.join(tempfile.gettempdir(), "tpu_logs"))
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = (
        "1"  # XLA's warning of an involuntary rematerialization is one of the findings
    )


def tpu(topology, slices=1):
    """The devices of `slices` slices such as `v5p:2x2x4`. Raises ConfigError for a name that is none, or without the TPU's compiler."""
    import jax
    from jax.experimental import topologies

    name, _, text = topology.partition(":")
    family, sides = (
        FAMILIES.get(name),
        [int(side) for side in text.split("x")] if re.fullmatch(r"\d+(x\d+)*", text) else [],
    )
    if not family or len(sides) != family.sides or not 0 < math.prod(sides) <= family.most:
        raise ConfigError(f"--topology {topology!r} is not the name of a TPU slice: {EXAMPLES}")
    options = family.options | ({"num_slices": slices} if slices > 1 else {})
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        if (
            "libtpu" in reason.lower()
            or "not found" in reason.lower()
            or "plugin" in reason.lower()
        ):
            raise ConfigError(
                f"--topology {topology} needs the TPU's compiler, which is not here ({reason}): {how_to_install('plan')}, on Linux; "
                "or --mesh N compiles for N fake CPU devices"
            ) from error
        raise ConfigError(f"--topology {topology}: {reason}. There are {EXAMPLES}") from error
    return Machine(topology, list(described.devices), slices)


def cpu(count):
    """`count` fake CPU devices; before anything else has asked JAX for its devices."""
    import jax

    jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices("cpu")
    if len(devices) != count:
        raise ConfigError(f"--mesh {count}: JAX has {len(devices)} CPU devices already")
    return Machine(f"{count} fake CPU devices", devices)
