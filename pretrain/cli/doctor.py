"""doctor: what this machine has of what Cloze needs; on a pod, also whether it found its neighbours and its chips."""

import importlib
import os
import platform
import tempfile
import time
from importlib import metadata

from pretrain.distributed import processes as cluster
from pretrain.distributed.accelerators import describe_unused, find_accelerators
from pretrain.extras import how_to_install

NEEDED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-cpu", "tensorflow-datasets", "sentencepiece",
          "tokenizers", "safetensors", "etils", "google-crc32c", "tensorboard", "rich")  # fmt: skip
EXTRAS = {"report": ("matplotlib",), "test": ("pytest",), "peers": ("transformers", "torch")}


def add_arguments(parser):
    parser.add_argument("--workdir", help="also check that this folder can be written")
    cluster.add_arguments(parser)


def run(args):
    print(
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    )
    missing = [name for name in NEEDED if _line(name) is None and name != "tensorflow-cpu"]
    if _version("tensorflow-cpu") is None and _version("tensorflow") is None:
        missing.append("tensorflow-cpu")
    for extra, names in EXTRAS.items():
        absent = [name for name in names if _line(name) is None]
        if absent:
            print(
                f"  extra '{extra}' is not installed ({', '.join(absent)}): {how_to_install(extra)}"
            )
    healthy = not missing
    if missing:
        print(f"missing: {', '.join(missing)}; run ./launch.sh")
    else:
        told = cluster.seen_by(args)
        print(
            f"this looks like one of several hosts: {told}"
            if told.processes != 1
            else f"this host is alone ({told})"
        )
        cluster.start(args)
        import jax

        healthy &= _joined(told, jax.process_count())
        healthy &= _accelerators(find_accelerators(), jax.default_backend())
        print(f"{jax.default_backend()}: {jax.device_count()} devices, {jax.local_device_count()} of them on this host, "
              f"{jax.process_count()} processes, {jax.devices()[0].device_kind}")  # fmt: skip
        start = time.perf_counter()
        importlib.import_module("tensorflow")
        print(
            f"tensorflow imports in {time.perf_counter() - start:.1f} s and sees no accelerator that JAX needs"
        )
    if args.workdir:
        healthy &= _writable(args.workdir)
    print("all is well" if healthy else "something is missing, see above")
    return 0 if healthy else 1


def _joined(told, processes):
    """Whether JAX has as many processes as were told of, and nothing speaks of more."""
    if told.processes not in (None, processes):
        print(f"but JAX joined {processes}: each part would train by itself")
    return not told.note and told.processes in (None, processes)


def _accelerators(found, backend):
    """Print the accelerators of this machine; return whether JAX uses them, or the CPU was requested."""
    for one in found:
        print(f"this machine has {one}")
    unused = describe_unused(found, backend)
    if unused:
        print(unused)
    return not unused


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _line(name):
    version = _version(name)
    if version:
        print(f"  {name:<22}{version}")
    return version


def _writable(workdir):
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
