"""The accelerators that the operating system shows, and the extra of setup.cfg that lets JAX use them. Needs nothing but Python.

    python -m pretrain.distributed.accelerators

prints that extra (tpu, cuda13, cuda12), or nothing on a machine without an accelerator; launch.sh installs it.

Device files decide, not environment variables: TPU_ACCELERATOR_TYPE and its neighbours are also set where there is no TPU (by
pretrain/__main__.py, to keep libtpu quiet), and over ssh a TPU VM has none of them.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping

from pretrain.extras import how_to_install

GOOGLE = "0x1ae0"  # PCI vendor
NETWORK_OR_STORAGE = (
    "0x01",
    "0x02",
)  # PCI classes of Google's other devices: disks and network cards
# The oldest driver of NVIDIA for each CUDA that JAX is built for (JAX's installation page, 2026-11), newest first.
OLDEST_DRIVER = {"cuda13": 580, "cuda12": 525}
EXTRAS = ("tpu", *OLDEST_DRIVER)


@dataclasses.dataclass(frozen=True)
class Accelerators:
    """Accelerators of one kind. kind: "TPU" or "GPU"; count: chips; paths: where they were seen; driver: NVIDIA's version, or ""."""

    kind: str
    count: int
    paths: tuple[str, ...]
    driver: str = ""

    @property
    def platform(self) -> str:
        """The name of JAX's backend."""
        return self.kind.lower()

    def __str__(self):
        first, *others = self.paths
        more = ", ..." if others else ""
        name = {"TPU": "TPU chip", "GPU": "NVIDIA GPU"}[self.kind]
        return f"{self.count} {name}{'s' * (self.count > 1)} ({first}{more})"


# ---- what is seen --------------------------------------------------------------


def find_accelerators(root: str | os.PathLike = "/") -> list[Accelerators]:
    """Return the TPUs and the NVIDIA GPUs that /dev, /proc and /sys below `root` show; [] where there are none."""
    root = pathlib.Path(root)
    return [found for found in (_find_tpus(root), _find_gpus(root)) if found]


def _find_tpus(root):
    """TPU v2 to v4 have files /dev/accelN. Newer ones have /dev/vfio/N, as has any device that is passed through: the PCI bus tells which."""
    if paths := _list_numbered(root, "dev", "accel"):
        return Accelerators("TPU", len(paths), paths)
    paths = _list_numbered(root, "dev/vfio", "")
    chips = (
        sum(_is_tpu(device) for device in (root / "sys/bus/pci/devices").glob("*")) if paths else 0
    )
    return Accelerators("TPU", chips, paths) if chips else None


def _is_tpu(device):
    vendor, kind = (_read(device / name) for name in ("vendor", "class"))
    return vendor == GOOGLE and not kind.startswith(NETWORK_OR_STORAGE)


def _find_gpus(root):
    """GPUs by /dev/nvidiaN, or by the driver's own list: it makes the files only when a GPU is first used."""
    paths = _list_numbered(root, "dev", "nvidia")
    paths = paths or tuple(
        f"/proc/driver/nvidia/gpus/{path.name}"
        for path in sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    )
    if not paths:
        return None
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _read(root / "proc/driver/nvidia/version"))
    return Accelerators("GPU", len(paths), paths, found[0] if found else "")


def _list_numbered(root, folder, name):
    """Return the paths below `root` of a folder's files NAME0, NAME1, ..., by number."""
    endings = [path.name[len(name) :] for path in (root / folder).glob(f"{name}[0-9]*")]
    return tuple(
        f"/{folder}/{name}{number}"
        for number in sorted(int(ending) for ending in endings if ending.isdecimal())
    )


def _read(path):
    try:
        return path.read_text().strip()
    except OSError:  # not there, or not for this user
        return ""


# ---- what follows --------------------------------------------------------------


def choose_extra(found: list[Accelerators]) -> str:
    """Return the extra of setup.cfg for these accelerators, "" for none. Raises ValueError where a person must choose."""
    choices = f"./launch.sh installs what CLOZE_ACCELERATOR names: {', '.join(EXTRAS)} or cpu"
    if len(found) > 1:
        raise ValueError(f"this machine has {' and '.join(map(str, found))}: {choices}")
    if not found:
        return ""
    (one,) = found
    if one.kind == "TPU":
        return "tpu"
    if not one.driver:
        raise ValueError(
            f"{one}: /proc/driver/nvidia/version does not give the driver's version: {choices}"
        )
    for extra, oldest in OLDEST_DRIVER.items():
        if int(one.driver.partition(".")[0]) >= oldest:
            return extra
    raise ValueError(
        f"{one}: driver {one.driver} is older than {oldest}, the oldest for CUDA 12. Update the driver, or set JAX_PLATFORMS=cpu"
    )


def is_cpu_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether JAX_PLATFORMS asks for the CPU before anything else."""
    return environ.get("JAX_PLATFORMS", "").partition(",")[0].strip().lower() == "cpu"


def describe_unused(
    found: list[Accelerators], backend: str, environ: Mapping[str, str] = os.environ
) -> str:
    """Return one sentence where JAX runs on the CPU of a machine with accelerators and nobody asked for that, else ""."""
    if not found or backend != "cpu" or is_cpu_requested(environ):
        return ""
    try:
        remedy = f"Install what it needs: {how_to_install(choose_extra(found))}"
    except ValueError as error:
        remedy = f"Choose what to install: {error}"
    seen = " and ".join(map(str, found))
    return (
        f"this machine has {seen}, but JAX runs on the cpu. {remedy}. Where that is installed, another process may hold the "
        f"{found[0].kind}. JAX_PLATFORMS=cpu uses the CPU all the same"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pretrain.distributed.accelerators",
        description="the extra of setup.cfg for this machine's accelerators",
    )
    parser.add_argument("--root", default="/", help="the folder with dev, proc and sys")
    args = parser.parse_args(argv)
    requested = os.environ.get("CLOZE_ACCELERATOR")
    try:
        if requested and requested not in (*EXTRAS, "cpu"):
            raise ValueError(
                f"CLOZE_ACCELERATOR={requested}: one of {', '.join(EXTRAS)}, cpu, or unset to look for them"
            )
        extra = requested or (
            "cpu" if is_cpu_requested() else choose_extra(find_accelerators(args.root))
        )
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("" if extra == "cpu" else extra)
    return 0


if __name__ == "__main__":
    sys.exit(main())
