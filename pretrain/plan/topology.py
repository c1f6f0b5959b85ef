"""Machines to plan for: the devices of a TPU slice as its compiler describes them, or CPU devices.

None of the TPU's devices has to be present.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import tempfile
from typing import Any, NamedTuple

from pretrain.host.extras import how_to_install
from pretrain.settings.overrides import ConfigError
from pretrain.training.accelerators import CHIPS, GIB, Chip


class TpuFamily(NamedTuple):
    """The slices of one TPU generation.

    Attributes:
      num_sides: number of sides (dimensions) of a slice.
      max_chips: number of chips of the largest slice.
      ring_multiple: a side whose length is a multiple of this is closed to a ring.
      usable_bytes: bytes of HBM that the compiler gives to a program (measured with libtpu 0.0.42).
      topology_options: they make the compiler show the devices as JAX does on the machine.
    """

    num_sides: int
    max_chips: int
    ring_multiple: int
    usable_bytes: float
    topology_options: dict[str, Any]


TPU_FAMILIES = {
    "v4": TpuFamily(3, 4096, 4, 30.75 * GIB, {"chip_config_name": "megacore"}),
    "v5e": TpuFamily(2, 256, 16, 15.75 * GIB, {}),
    "v5p": TpuFamily(3, 6144, 4, 95.74 * GIB, {}),
    "v6e": TpuFamily(2, 256, 16, 31.25 * GIB, {}),
}
EXAMPLE_TOPOLOGIES = (
    "v4:2x2x1 to v4:8x8x16, v5e:1x1 to v5e:16x16, v5p:2x2x1 to v5p:16x16x24, v6e:1x1 to v6e:16x16"
)


class Machine(NamedTuple):
    """The devices that a program is compiled for.

    Attributes:
      name: the topology, such as "v5p:2x2x4", or a description of CPU devices.
      devices: the devices in JAX's order.
      num_slices: number of slices; a slower network connects them.
    """

    name: str
    devices: list[Any]
    num_slices: int = 1

    @property
    def device_kind(self) -> str:
        """Return JAX's device_kind."""
        return self.devices[0].device_kind

    @property
    def chip(self) -> Chip | None:
        """Return the published figures of the chip, or None."""
        return CHIPS.get(self.device_kind)

    @property
    def family(self) -> TpuFamily | None:
        """Return the TPU generation; None for CPU devices."""
        return TPU_FAMILIES.get(self.name.partition(":")[0])

    @property
    def slice_shape(self) -> tuple[int, ...]:
        """Return the chips along each side of a slice, such as (4, 4, 4); () for CPU devices."""
        return (
            tuple(int(side) for side in self.name.partition(":")[2].split("x"))
            if self.family
            else ()
        )


def configure_environment() -> None:
    """Set the environment variables that libtpu and XLA read once, when they are loaded.

    For a process that only plans.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is executed
    # Without these libtpu queries a metadata server, which is absent.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # libtpu's lock protects chips; two plans may run at the same time.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_LOG_DIR", os.path.join(tempfile.gettempdir(), "tpu_logs"))
    # XLA's warning about an involuntary rematerialization is one of the findings.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"


def make_tpu_machine(topology: str, num_slices: int = 1) -> Machine:
    """Return the machine of `num_slices` num_slices of a topology such as `v5p:2x2x4`.

    Raises:
      ConfigError: if the topology is unknown or the TPU's compiler is not installed.
    """
    import jax
    from jax.experimental import topologies

    name, _, text = topology.partition(":")
    family = TPU_FAMILIES.get(name)
    sides = [int(side) for side in text.split("x")] if re.fullmatch(r"\d+(x\d+)*", text) else []
    if not family or len(sides) != family.num_sides or not 0 < math.prod(sides) <= family.max_chips:
        raise ConfigError(
            f"--topology {topology!r} is not the name of a TPU slice: {EXAMPLE_TOPOLOGIES}"
        )
    options = family.topology_options | ({"num_slices": num_slices} if num_slices > 1 else {})
    try:
        description = topologies.get_topology_desc(
            platform="tpu", topology_name=topology, **options
        )
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        if importlib.util.find_spec("libtpu") is None or "libtpu" in reason.lower():
            raise ConfigError(
                f"--topology {topology} needs the TPU's compiler, which is not installed "
                f"({reason}). On Linux, install it: {how_to_install('plan')}; or use --mesh N, "
                "which compiles for N fake CPU devices"
            ) from error
        raise ConfigError(
            f"--topology {topology}: {reason}. Allowed: {EXAMPLE_TOPOLOGIES}"
        ) from error
    return Machine(topology, list(description.devices), num_slices)


def make_cpu_machine(count: int) -> Machine:
    """Return a machine of `count` fake CPU devices.

    Call it before anything else makes JAX list its devices.

    Raises:
      ConfigError: if JAX has already created another number of CPU devices.
    """
    import jax

    jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices("cpu")
    if len(devices) != count:
        raise ConfigError(f"--mesh {count}: JAX has already created {len(devices)} CPU devices")
    return Machine(f"{count} fake CPU devices", devices)
