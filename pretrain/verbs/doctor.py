"""doctor: what this machine has of what Cloze needs."""

import importlib
import os
import platform
import tempfile
import time
from importlib import metadata

NEEDED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-cpu", "tensorflow-datasets", "sentencepiece",
          "tokenizers", "safetensors", "etils", "google-crc32c", "tensorboard", "rich")  # fmt: skip
EXTRAS = {"report": ("matplotlib",), "test": ("pytest",), "peers": ("transformers", "torch")}


def add_arguments(parser):
    parser.add_argument("--workdir", help="also check that this folder can be written")


def run(args):
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    missing = [name for name in NEEDED if _line(name) is None and name != "tensorflow-cpu"]
    if _version("tensorflow-cpu") is None and _version("tensorflow") is None:
        missing.append("tensorflow-cpu")
    for extra, names in EXTRAS.items():
        absent = [name for name in names if _line(name) is None]
        if absent:
            print(f"  extra '{extra}' is not installed ({', '.join(absent)}): pip install -e '.[{extra}]'")
    healthy = not missing
    if missing:
        print(f"missing: {', '.join(missing)}; run ./launch.sh")
    else:
        from pretrain import cluster

        cluster.start()
        import jax

        print(f"{jax.default_backend()}: {jax.device_count()} devices, {jax.local_device_count()} of them on this host, "
              f"{jax.process_count()} processes, {jax.devices()[0].device_kind}")  # fmt: skip
        start = time.perf_counter()
        importlib.import_module("tensorflow")
        print(f"tensorflow imports in {time.perf_counter() - start:.1f} s and sees no accelerator that JAX needs")
    if args.workdir:
        healthy &= _writable(args.workdir)
    print("all is well" if healthy else "something is missing, see above")
    return 0 if healthy else 1


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
