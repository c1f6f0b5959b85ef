"""Two programs side by side: each in a process of its own, which waits while the other works.

A worker is a program that reads a JSON line from its standard input, does what it says, and answers with one on its standard output; what it
prints otherwise goes to standard error. `interleaved` lets workers take turns, so that a machine that slows down slows both.
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cloze"

# What launch.sh sets: glibc keeps its pages, instead of giving them back and taking them again at each step.
KEEP_PAGES = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1"
}
# For a process whose compilation is timed: it compiles as a first run does.
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
# What a processor multiplies with, the fastest first, as Linux names it.
WIDE = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
# The peers' own environment; the torch of this number has a build for the CPU alone.
PEERS = (
    "torch==2.13.0",
    "transformers>=5.0,<6",
    "accelerate>=1.15,<2",
    "safetensors>=0.7,<1",
    "numpy",
)


class Worker:
    """A process that answers JSON lines. A context manager: leaving it ends the process."""

    def __init__(self, words, environment=None):
        self.words = [str(word) for word in words]
        self.process = subprocess.Popen(
            self.words,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, **message):
        """The answer to a message. Raises RuntimeError where the worker has ended instead."""
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # told below, with its status
        return self.hear()

    def hear(self):
        """The next answer."""
        if line := self.process.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"{' '.join(self.words)} ended with status {self.process.wait()}")


def answer(serve):
    """The worker's side: serve(message) -> answer, for each message until there are no more."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no answer

    def say(reply):
        out.write(json.dumps(reply) + "\n")
        out.flush()

    begin = serve()
    say(begin.pop("ready"))
    for line in sys.stdin:
        say(begin["step"](**json.loads(line)))


def interleaved(workers, rounds, **message):
    """{name: [answer of each round]}: A B A B ...; workers: {name: Worker}."""
    found = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            found[name].append(worker.ask(**message))
    return found


def memory():
    """The most that this process has held so far, or since `forget`, MiB (VmHWM)."""
    line = next(
        line
        for line in pathlib.Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


def forget():
    """What `memory` says, which then begins anew: pages that are free go back to the system, so that what a start leaves behind is no step's."""
    most = memory()
    ctypes.CDLL(None).malloc_trim(0)  # glibc's; jemalloc and the like are not in these programs
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return most


def peers_python():
    """The Python of the peers' environment: that of CLOZE_PEERS_PYTHON, or one made here, in a minute or two, of about a GiB."""
    if own := os.environ.get("CLOZE_PEERS_PYTHON"):
        if not (python := shutil.which(own)):
            raise FileNotFoundError(
                f"CLOZE_PEERS_PYTHON is {own}, which is no program: name a Python that has torch, transformers and accelerate"
            )
        return pathlib.Path(
            python
        ).absolute()  # workers begin elsewhere; a link is kept, which makes the environment
    folder = CACHE / "peers"
    mark = folder / "installed.json"
    python = folder / "bin" / "python"
    if not mark.exists() or json.loads(mark.read_text()) != list(PEERS):
        print(f"installing the peers into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS],
            check=True,
        )
        mark.write_text(json.dumps(PEERS))
    return python


def intel_path():
    """A library that makes MKL take its AVX-512 path on other makers' processors: what a person who tunes torch there does."""
    library = CACHE / "mkl_avx512.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "mkl.c"
            source.write_text("int mkl_serv_intel_cpu_true() { return 1; }\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


def processor_name():
    """Its name, and the most of WIDE that it has: machines of one name differ in it, and a bfloat16 step by three times."""
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags", "").split()
    wide = next((f" with {name}" for name in WIDE if name in flags), "")
    return facts.get("model name", platform.processor()) + wide


# ---- what programs are told ---------------------------------------------------


def at_least(least):
    """A parser's type: an int that is no smaller."""

    def integer(text):
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    return integer


def duration(text):
    """A parser's type: seconds, more than none."""
    if not (seconds := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return seconds


def some_of(known, least=1):
    """A parser's type: names with commas between them, all of them known, each once."""

    def names(text):
        found = list(dict.fromkeys(name for name in text.split(",") if name))
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; there are {', '.join(known)}"
            )
        if len(found) < least:
            raise argparse.ArgumentTypeError(f"none is named; there are {', '.join(known)}")
        return found

    return names


@contextlib.contextmanager
def told_plainly(parser):
    """What is wrong with a store or a configuration is told in a line, as `python -m pretrain` does."""
    try:
        yield
    except (ValueError, OSError) as error:
        if os.environ.get("CLOZE_TRACEBACK"):
            raise
        parser.error(str(error))


# ---- what they tell -----------------------------------------------------------


def command():
    """How this program was called, as a shell takes it, from the root of the repository."""
    spec = sys.modules["__main__"].__spec__
    name = (
        ["-m", spec.name] if spec else [str(pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT))]
    )
    return shlex.join(["python", *name, *sys.argv[1:]])


def spread(values, form=",.0f"):
    """A cell of measurements: the median, and in brackets the least and the most."""
    return f"{np.median(values):{form}} ({np.min(values):{form}} to {np.max(values):{form}})"


def title(load, *versions):
    """A section's heading: when, on what, how busy it was."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"## {datetime.date.today()}, {processor_name()}, {cores} core{'s' * (cores != 1)}, load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end, "
        + ", ".join([f"Python {platform.python_version()}", *versions])
    )


def append(page, lines):
    """Print a section, and put it at the end of a page of benchmarks/results."""
    text = "\n".join([*lines, ""])
    print(text)
    with (RESULTS / page).open("a") as file:
        file.write(text + "\n")
