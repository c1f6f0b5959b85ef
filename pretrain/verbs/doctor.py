"""doctor: what this machine has of what Cloze needs; on a pod, also whether it found its neighbours and its chips."""

import importlib
import os
import pathlib
import platform
import re
import tempfile
import time
from importlib import metadata

NEEDED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-cpu", "tensorflow-datasets", "sentencepiece",
          "tokenizers", "safetensors", "etils", "google-crc32c", "tensorboard", "rich")  # fmt: skip
# who tells -> (variable with the number of processes, variable with the number of this one)
LAUNCHERS = {"JAX": ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"), "Slurm": ("SLURM_NTASKS", "SLURM_PROCID")}
# device files of accelerators -> what they are; one file a chip
CHIPS = {"accel*": "TPU", "vfio/*": "TPU", "nvidia*": "GPU"}
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

        told = neighbours(os.environ)  # before JAX: libtpu sets what it misses
        cluster.start()
        import jax

        healthy &= _hosts(told, jax.process_count())
        healthy &= _chips(chips(), jax.default_backend())
        print(f"{jax.default_backend()}: {jax.device_count()} devices, {jax.local_device_count()} of them on this host, "
              f"{jax.process_count()} processes, {jax.devices()[0].device_kind}")  # fmt: skip
        start = time.perf_counter()
        importlib.import_module("tensorflow")
        print(f"tensorflow imports in {time.perf_counter() - start:.1f} s and sees no accelerator that JAX needs")
    if args.workdir:
        healthy &= _writable(args.workdir)
    print("all is well" if healthy else "something is missing, see above")
    return 0 if healthy else 1


def neighbours(environ):
    """(host, hosts, who told) as the environment tells it; None where it tells nothing. host counts from 1, None where only it is unset."""
    for launcher, (count, number) in LAUNCHERS.items():
        if environ.get(count):
            host = environ.get(number)
            return int(host) + 1 if host else None, int(environ[count]), launcher
    names = environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES")
    if names:  # the hosts of one slice; slices are counted apart
        each, slices = len(names.split(",")), int(environ.get("MEGASCALE_NUM_SLICES") or 1)
        host = environ.get("TPU_WORKER_ID")
        host = int(host) + each * int(environ.get("MEGASCALE_SLICE_ID") or 0) + 1 if host else None
        return host, each * slices, f"TPU runtime, {slices} slices" if slices > 1 else "TPU runtime"
    return None


def chips(devices="/dev"):
    """{"TPU": n, "GPU": n} that the operating system sees; what it does not see is left out."""
    found = {}
    for pattern, kind in CHIPS.items():
        count = sum(bool(re.fullmatch(r"[a-z]*\d+", path.name)) for path in pathlib.Path(devices).glob(pattern))
        if count:
            found[kind] = found.get(kind, 0) + count
    return found


def _hosts(told, processes):
    if told and (told[1] > 1 or processes > 1):
        host, hosts, source = told
        which = "one of" if host is None else f"host {host} of"
        print(f"this looks like {which} {hosts} ({source})")
        if hosts != processes:
            print(f"but JAX joined {processes}: each part would train by itself. Look at the environment of pretrain/cluster.py")
            return False
    elif processes > 1:
        print(f"this is one of {processes} hosts")
    return True


def _chips(seen, backend):
    expected = {"TPU": "tpu", "GPU": "gpu"}
    for kind, count in seen.items():
        print(f"{count} {kind} chips are in this machine")
    if seen and backend not in [expected[kind] for kind in seen] and not os.environ.get("JAX_PLATFORMS"):
        extra = "tpu" if "TPU" in seen else "cuda13"
        print(f"but JAX runs on the {backend}: pip install 'jax[{extra}]', or another process holds them")
        return False
    return True


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
