"""The environment of the peers, which are programs of torch: their Python and their settings."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from benchmarks.harness import CACHE

# Packages of the peers' own environment; this version of torch has a CPU-only build.
PEER_PACKAGES = (
    "torch==2.13.0",
    "transformers>=5.0,<6",
    "accelerate>=1.15,<2",
    "safetensors>=0.7,<1",
    "numpy",
)


def find_peers_python(
    packages: tuple[str, ...] = PEER_PACKAGES, name: str = "peers"
) -> pathlib.Path:
    """Return the Python of the peers' environment, which has some packages.

    The one of CLOZE_PEERS_PYTHON, or one in a virtual environment which is created on the first
    call: a minute or two, about a GiB. Raise FileNotFoundError if the former is not a program.
    """
    if own := os.environ.get("CLOZE_PEERS_PYTHON"):
        if not (python := shutil.which(own)):
            raise FileNotFoundError(
                f"CLOZE_PEERS_PYTHON is {own}, which is not a program: "
                f"set it to a Python that has {', '.join(packages)}"
            )
        # Absolute, because workers start in another folder. Symbolic links are not resolved,
        # because the link's folder determines the virtual environment.
        return pathlib.Path(python).absolute()
    folder = CACHE / name
    mark = folder / "installed.json"
    python = folder / "bin" / "python"
    if not mark.exists() or json.loads(mark.read_text()) != list(packages):
        print(f"installing the peers into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *packages], check=True)
        mark.write_text(json.dumps(packages))
    return python


def make_mkl_environment() -> dict[str, str]:
    """Return environment variables that make MKL use AVX-512 on other makers' processors.

    A common way to tune torch there. The library is compiled on the first call.
    """
    library = CACHE / "mkl_avx512.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "mkl.c"
            source.write_text("int mkl_serv_intel_cpu_true() { return 1; }\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}
