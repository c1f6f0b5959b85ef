"""doctor: check what this machine has of what Cloze needs.

On a pod it also checks that this process finds the other processes and the accelerators.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from data.read_ahead import choose_feed
from data.tensorflow_import import import_tensorflow
from pretrain.host.command import PREFIX
from pretrain.host.extras import find_version, how_to_install
from pretrain.processes import processes as cluster
from pretrain.processes.accelerator_detection import (
    Accelerators,
    describe_unused,
    find_accelerators,
)
from pretrain.settings.jax_settings import explain_jax_error, list_refused

if TYPE_CHECKING:
    from pretrain.processes.cluster_detection import Cluster

NEEDED = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "sentencepiece"),
    *("tokenizers", "safetensors", "etils", "google-crc32c", "tensorboard", "rich"),
)
EXTRAS = {
    "tfdata": ("tensorflow-cpu", "tensorflow-datasets"),
    "report": ("matplotlib",),
    "test": ("pytest",),
    "peers": ("transformers", "torch"),
}
STAND_INS = {"tensorflow-cpu": "tensorflow"}  # where the former has no wheels


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor` to a parser."""
    parser.add_argument("--workdir", help="also check this folder, and save there")
    parser.add_argument(
        "--kernels",
        nargs="*",
        metavar="CONFIG",
        help="also compare the hand-made operations of these devices with the plain equations, on "
        "the shapes of these configurations (default: all that end in _base)",
    )
    cluster.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was found; return 0 if nothing needed is missing, else 1."""
    print(
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores"
    )
    missing = [name for name in NEEDED if _print_version(name) is None]
    for extra, names in EXTRAS.items():
        absent = [name for name in names if _print_version(name) is None]
        if absent:
            remedy = how_to_install(extra)
            print(f"  extra '{extra}' is not installed ({', '.join(absent)}): {remedy}")
    healthy = not missing
    if missing:
        remedy = "install Cloze again, with its dependencies" if PREFIX else "run ./launch.sh"
        print(f"missing: {', '.join(missing)}; {remedy}")
    else:
        detected = cluster.detect_own_cluster(args)
        print(
            f"this looks like one of several hosts: {detected}"
            if detected.num_processes != 1
            else f"this host is alone ({detected})"
        )
        healthy &= _check_settings()
        has_devices = _check_devices(args, detected)
        healthy &= has_devices
        if has_devices and args.kernels is not None:
            _print_kernels(args.kernels)
        healthy &= _check_feed()
    if args.workdir:
        healthy &= _check_writable(args.workdir)
    if not missing and healthy:
        healthy &= _check_save(args.workdir)
    print("all is well" if healthy else "something is missing, see above")
    return 0 if healthy else 1


def _check_settings() -> bool:
    """Return whether JAX has no setting that other verbs refuse; print each."""
    lines = [*list_refused(os.environ)]
    for line in lines:
        print(line)
    return not lines


def _check_devices(args: argparse.Namespace, detected: Cluster) -> bool:
    """Print JAX's devices; return whether JAX can open them and they are those expected."""
    cluster.join_run(args)
    try:
        import jax

        print(
            f"{jax.default_backend()}: {jax.device_count()} devices, {jax.local_device_count()} "
            f"of them on this host, {jax.process_count()} processes, "
            f"{jax.devices()[0].device_kind}"
        )
    except (RuntimeError, ValueError) as error:
        if not (line := explain_jax_error(error)):
            raise
        print(line)
        return False
    healthy = _check_process_count(detected, jax.process_count())
    return _check_accelerators(find_accelerators(), jax.default_backend()) and healthy


def _print_kernels(names: Sequence[str]) -> None:
    """Print which hand-made operations agree with the plain equations on these devices.

    names: configurations, whose shapes are tried.
    """
    from pretrain.training.trials.kernel_table import list_lines

    for line in list_lines(names):
        print(line, flush=True)


def _check_process_count(detected: Cluster, processes: int) -> bool:
    """Return whether JAX has as many processes as were detected and detection has no warning."""
    if detected.num_processes not in (None, processes):
        print(f"but JAX joined {processes}: each process would train by itself")
    return not detected.note and detected.num_processes in (None, processes)


def _check_accelerators(found: Sequence[Accelerators], backend: str) -> bool:
    """Print the accelerators of this machine; return whether JAX uses them.

    True also if the CPU was requested (JAX_PLATFORMS=cpu).
    """
    for accelerators in found:
        print(f"this machine has {accelerators}")
    unused = describe_unused([*found], backend)
    if unused:
        print(unused)
    return not unused


def _check_feed() -> bool:
    """Print what feeds training; return whether TensorFlow, if it is installed, can be imported."""
    if choose_feed("auto") == "threads":
        print("batches come from threads: TensorFlow is not installed")
        return True
    start = time.perf_counter()
    try:
        import_tensorflow()
    except ValueError as error:
        print(error)
        return False
    seconds = time.perf_counter() - start
    print(f"tensorflow imports in {seconds:.1f} s and sees no accelerator that JAX needs")
    return True


def _print_version(name: str) -> str | None:
    """Print a distribution and its version if it is installed; return the version or None."""
    version = find_version(name)
    if version is None and name in STAND_INS:
        return _print_version(STAND_INS[name])
    if version:
        print(f"  {name:<22}{version}")
    return version


def _check_save(workdir: str | None) -> bool:
    """Return whether a checkpoint can be saved below a workdir, or else here; print the result."""
    import jax
    from etils import epath

    from pretrain.training.trial_save import try_save

    if jax.process_count() > 1:  # they would save together, in a folder that all of them see
        return True
    parent = epath.Path(workdir or tempfile.gettempdir())
    folder = parent / f".doctor-{os.getpid()}-{os.path.basename(tempfile.mktemp())}"
    try:
        try_save(folder)
    except Exception as error:
        print(f"{parent}: a checkpoint cannot be saved: {type(error).__name__}: {error}")
        return False
    finally:
        if folder.exists():
            folder.rmtree()
    print(f"{parent}: a checkpoint can be saved and restored")
    return True


def _check_writable(workdir: str) -> bool:
    """Return whether a file can be written to a folder, which is created; print the result."""
    from etils import epath

    folder = epath.Path(workdir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".doctor-{os.getpid()}-{os.path.basename(tempfile.mktemp())}"
        probe.write_text("written")
        probe.unlink()
    except OSError as error:
        print(f"{workdir}: cannot be written: {error}")
        return False
    print(f"{workdir}: can be written")
    return True
