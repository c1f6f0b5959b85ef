"""Shared code of the benchmarks: worker processes, arguments, and sections of result pages.

A worker is a program that reads JSON lines from its standard input and answers each with a JSON
line on its standard output; all other output goes to standard error. `interleave_workers` lets
them take turns, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cloze"

# As in launch.sh: glibc keeps freed pages instead of returning them to the system at each step.
MALLOC_ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:"
    "glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1"
}
# For a process whose compilation is timed: it compiles everything, as a first run does.
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
# Instruction sets for matmuls, the fastest first, as Linux names them.
MATMUL_INSTRUCTION_SETS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


class Worker:
    """A process that answers JSON lines. As a context manager it ends the process on exit."""

    def __init__(
        self, argv: Sequence[object], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the command `argv` with additional environment variables."""
        self.argv = [str(word) for word in argv]
        self.process = subprocess.Popen(
            self.argv,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # a message that did not arrive
            self.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stdout.close()

    def ask_worker(self, **message: Any) -> Any:
        """Send a message and return the answer; raise RuntimeError if the worker has ended."""
        try:
            self.stdin.write(json.dumps(message) + "\n")
            self.stdin.flush()
        except BrokenPipeError:
            pass  # read_answer() raises an error with the exit status
        return self.read_answer()

    def read_answer(self) -> Any:
        """Return the next answer; raise RuntimeError if the worker has ended."""
        if line := self.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"{' '.join(self.argv)} ended with status {self.process.wait()}")


def answer_messages(serve: Callable[[], dict[str, Any]]) -> None:
    """Answer messages from standard input until it ends; run by the worker process.

    Args:
      serve: returns {"ready": the first answer, "step": function of a message to its answer}.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries goes to standard error

    def send_answer(reply: Any) -> None:
        out.write(json.dumps(reply) + "\n")
        out.flush()

    server = serve()
    send_answer(server["ready"])
    for line in sys.stdin:
        send_answer(server["step"](**json.loads(line)))


def interleave_workers(
    workers: Mapping[str, Worker], rounds: int, **message: Any
) -> dict[str, list[Any]]:
    """Send a message to each worker in turn, A B A B ..., for a number of rounds.

    Returns:
      {name: [answer of each round]}.
    """
    answers: dict[str, list[Any]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            answers[name].append(worker.ask_worker(**message))
    return answers


def measure_peak_memory() -> float:
    """Return the peak memory (VmHWM) in MiB since the start or the last `reset_peak_memory`."""
    line = next(
        line
        for line in pathlib.Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


def reset_peak_memory() -> float:
    """Return the peak memory in MiB and reset it.

    Free pages are returned to the system first, so that the memory of the start-up does not count
    for the steps.
    """
    peak_mib = measure_peak_memory()
    # glibc's malloc; these programs use no other allocator.
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return peak_mib


def get_processor_name() -> str:
    """Return the processor's name and the fastest of `MATMUL_INSTRUCTION_SETS` that it has.

    Processors of one name differ in these instruction sets, and a bfloat16 step by three times.
    """
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags", "").split()
    wide = next((f" with {name}" for name in MATMUL_INSTRUCTION_SETS if name in flags), "")
    return facts.get("model name", platform.processor()) + wide


# ---- arguments ----------------------------------------------------------------


def int_at_least(minimum: int) -> Callable[[str], int]:
    """Return an argparse type: an int that is not less than `minimum`."""

    # argparse shows this function's name in its error messages.
    def integer(text: str) -> int:
        if (number := int(text)) < minimum:
            raise argparse.ArgumentTypeError(f"{number} is less than {minimum}")
        return number

    return integer


def int_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return an argparse type: an int from `minimum` to `maximum`."""

    def integer(text: str) -> int:
        if not minimum <= (number := int(text)) <= maximum:
            raise argparse.ArgumentTypeError(f"{number} is not from {minimum} to {maximum}")
        return number

    return integer


def multiple_of(number: int, minimum: int) -> Callable[[str], int]:
    """Return an argparse type: a multiple of `number` that is not less than `minimum`."""

    def integer(text: str) -> int:
        if (value := int_at_least(minimum)(text)) % number:
            raise argparse.ArgumentTypeError(f"{value} is not a multiple of {number}")
        return value

    return integer


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object; an argparse type."""
    with contextlib.suppress(json.JSONDecodeError):
        if isinstance(value := json.loads(text), dict):
            return value
    raise argparse.ArgumentTypeError(f"{text} is not a JSON object")


def duration(text: str) -> float:
    """Return a positive number of seconds; an argparse type."""
    if not (seconds := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return seconds


def some_of(known: Collection[str], min_names: int = 1) -> Callable[[str], list[str]]:
    """Return an argparse type: comma-separated names, without repetitions.

    Args:
      known: the allowed names.
      min_names: the smallest number of names.
    """

    def names(text: str) -> list[str]:
        selected = list(dict.fromkeys(name for name in text.split(",") if name))
        if unknown := [name for name in selected if name not in known]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; allowed: {', '.join(known)}"
            )
        if len(selected) < min_names:
            raise argparse.ArgumentTypeError(f"no name is given; allowed: {', '.join(known)}")
        return selected

    return names


def require_paths(parser: argparse.ArgumentParser, name: str, *paths: pathlib.Path) -> None:
    """End with the parser's error unless the files and folders of an argument exist."""
    for path in paths:
        if not path.exists():
            parser.error(f"argument {name}: {path}: no such file or folder")


@contextlib.contextmanager
def report_errors(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Report an error about a store, a configuration or a program as the parser's error.

    `python -m pretrain` does the same. With CLOZE_TRACEBACK set, the error is raised.
    """
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("CLOZE_TRACEBACK"):
            raise
        parser.error(str(error))


# ---- result pages -------------------------------------------------------------


def format_command() -> str:
    """Return this program's command line for a shell in the root of the repository."""
    spec = sys.modules["__main__"].__spec__
    name = (
        ["-m", spec.name.removesuffix(".__main__")]
        if spec
        else [str(pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT))]
    )
    return shlex.join(["python", *name, *sys.argv[1:]])


def format_spread(values: Sequence[float] | np.ndarray, number_format: str = ",.0f") -> str:
    """Return a table cell: the median and, in brackets, the minimum and the maximum."""
    parts = (
        f"{part:{number_format}}" for part in (np.median(values), np.min(values), np.max(values))
    )
    return "{} ({} to {})".format(*parts)


def format_title(load: float, *versions: str) -> str:
    """Return a section's heading: date, processor, load at the start and the end, versions."""
    cores = len(os.sched_getaffinity(0))
    machine = f"{get_processor_name()}, {cores} core{'s' * (cores != 1)}"
    loads = f"load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
    python = f"Python {platform.python_version()}"
    return f"## {datetime.date.today()}, {machine}, {loads}, " + ", ".join([python, *versions])
