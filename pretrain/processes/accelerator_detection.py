"""Detect the accelerators of this machine and the extra of setup.cfg that lets JAX use them.

    python -m pretrain.processes.accelerator_detection

prints that extra (tpu, cuda13, cuda12), or nothing on a machine without an accelerator; launch.sh
installs it. This module needs nothing but Python.

Device files decide, not environment variables: TPU_ACCELERATOR_TYPE and similar variables are also
set on machines without a TPU (by pretrain/__main__.py, to keep libtpu quiet), and a TPU VM has none
of them in an ssh session.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping

from pretrain.host.extras import how_to_install
from pretrain.host.terminal import print_error

GOOGLE = "0x1ae0"  # PCI vendor
# PCI classes of Google's other devices: disks and network cards.
NETWORK_OR_STORAGE = ("0x01", "0x02")
# The oldest NVIDIA driver for each CUDA version that JAX is built for, newest first (JAX's
# installation page, 2026-11).
OLDEST_DRIVER = {"cuda13": 580, "cuda12": 525}
EXTRAS = ("tpu", *OLDEST_DRIVER)


@dataclasses.dataclass(frozen=True)
class Accelerators:
    """Accelerators of one kind.

    Attributes:
      kind: "TPU" or "GPU".
      count: number of chips.
      paths: files by which they were detected.
      driver: version of NVIDIA's driver, or "".
    """

    kind: str
    count: int
    paths: tuple[str, ...]
    driver: str = ""

    def __str__(self) -> str:
        first, *others = self.paths
        more = ", ..." if others else ""
        name = {"TPU": "TPU chip", "GPU": "NVIDIA GPU"}[self.kind]
        return f"{self.count} {name}{'s' * (self.count > 1)} ({first}{more})"


# ---- detection ------------------------------------------------------------------


def find_accelerators(root: str | os.PathLike = "/") -> list[Accelerators]:
    """Return the TPUs and NVIDIA GPUs that /dev, /proc and /sys below `root` show."""
    root = pathlib.Path(root)
    return [found for found in (_find_tpus(root), _find_gpus(root)) if found]


def _find_tpus(root: pathlib.Path) -> Accelerators | None:
    """Find TPUs by their device files.

    TPU v2 to v4 have /dev/accelN. Newer TPUs have /dev/vfio/N, as has any device that is passed
    through to a virtual machine; the PCI bus shows whether it is a TPU.
    """
    if paths := _list_numbered(root, "dev", "accel"):
        return Accelerators("TPU", len(paths), paths)
    paths = _list_numbered(root, "dev/vfio", "")
    chips = (
        sum(_is_tpu(device) for device in (root / "sys/bus/pci/devices").glob("*")) if paths else 0
    )
    return Accelerators("TPU", chips, paths) if chips else None


def _is_tpu(device: pathlib.Path) -> bool:
    vendor, kind = (_read_text(device / name) for name in ("vendor", "class"))
    return vendor == GOOGLE and not kind.startswith(NETWORK_OR_STORAGE)


def _find_gpus(root: pathlib.Path) -> Accelerators | None:
    """Find NVIDIA GPUs by /dev/nvidiaN, or by the driver's own list.

    The driver creates the device files only when a GPU is first used.
    """
    paths = _list_numbered(root, "dev", "nvidia")
    paths = paths or tuple(
        f"/proc/driver/nvidia/gpus/{path.name}"
        for path in sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    )
    if not paths:
        return None
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _read_text(root / "proc/driver/nvidia/version"))
    return Accelerators("GPU", len(paths), paths, version[0] if version else "")


def _list_numbered(root: pathlib.Path, folder: str, name: str) -> tuple[str, ...]:
    """Return the paths of NAME0, NAME1, ... in a folder below `root`, in order of their numbers."""
    endings = [path.name[len(name) :] for path in (root / folder).glob(f"{name}[0-9]*")]
    return tuple(
        f"/{folder}/{name}{number}"
        for number in sorted(int(ending) for ending in endings if ending.isdecimal())
    )


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # missing, or not readable for this user
        return ""


# ---- choice of an extra --------------------------------------------------------


def choose_extra(found: list[Accelerators]) -> str:
    """Return the extra of setup.cfg for these accelerators, "" for none."""
    choices = f"set CLOZE_ACCELERATOR to {', '.join(EXTRAS)} or cpu for ./launch.sh"
    if len(found) > 1:
        raise ValueError(f"this machine has {' and '.join(map(str, found))}: {choices}")
    if not found:
        return ""
    (accelerators,) = found
    if accelerators.kind == "TPU":
        return "tpu"
    if not accelerators.driver:
        raise ValueError(
            f"{accelerators}: /proc/driver/nvidia/version does not show the driver's version: "
            f"{choices}"
        )
    for extra, oldest in OLDEST_DRIVER.items():
        if int(accelerators.driver.partition(".")[0]) >= oldest:
            return extra
    raise ValueError(
        f"{accelerators}: driver {accelerators.driver} is older than {oldest}, the oldest for CUDA "
        "12. Update the driver, or set JAX_PLATFORMS=cpu"
    )


def is_cpu_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether JAX_PLATFORMS names the CPU first."""
    return environ.get("JAX_PLATFORMS", "").partition(",")[0].strip().lower() == "cpu"


def describe_unused(
    found: list[Accelerators], backend: str, environ: Mapping[str, str] = os.environ
) -> str:
    """Return an error message if JAX runs on the CPU of a machine with accelerators, else "".

    There is none if JAX_PLATFORMS requests the CPU.
    """
    if not found or backend != "cpu" or is_cpu_requested(environ):
        return ""
    try:
        remedy = f"Install what it needs: {how_to_install(choose_extra(found))}"
    except ValueError as error:
        remedy = f"Choose what to install: {error}"
    names = " and ".join(map(str, found))
    return (
        f"this machine has {names}, but JAX runs on the cpu. {remedy}. If that is installed, "
        f"another process may be using the {found[0].kind}. Set JAX_PLATFORMS=cpu to use the CPU"
    )


def main(argv: list[str] | None = None) -> int:
    """Print the extra of setup.cfg for this machine, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.accelerator_detection",
        description="Print the extra of setup.cfg for this machine's accelerators.",
    )
    parser.add_argument("--root", default="/", help="folder that contains dev, proc and sys")
    args = parser.parse_args(argv)
    requested = os.environ.get("CLOZE_ACCELERATOR")
    try:
        if requested and requested not in (*EXTRAS, "cpu"):
            raise ValueError(
                f"CLOZE_ACCELERATOR={requested}: expected one of {', '.join(EXTRAS)}, cpu, or "
                "unset to detect the accelerators"
            )
        extra = requested or (
            "cpu" if is_cpu_requested() else choose_extra(find_accelerators(args.root))
        )
    except ValueError as error:
        print_error(error)
        return 2
    print("" if extra == "cpu" else extra)
    return 0


if __name__ == "__main__":
    sys.exit(main())
