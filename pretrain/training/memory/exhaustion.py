"""Turn XLA's and NumPy's out-of-memory dumps into one readable line. No JAX."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator

from pretrain.host.host_memory import read_process_limits

# The names of XLA's only class of errors, which has a status code in its message.
XLA_ERRORS = ("JaxRuntimeError", "XlaRuntimeError")
STATUS = "RESOURCE_EXHAUSTED"
# Where no address space is left, as below a small `ulimit -v`: the loader, and Python's threads.
UNMAPPED = re.compile(
    "failed to map segment|cannot allocate memory|can't start new thread", re.IGNORECASE
)
MAX_CAUSE = 240  # characters


class MemoryExhausted(ValueError):
    """No memory was left on a device or on the host; the message names what takes less."""


def is_exhaustion(error: BaseException) -> bool:
    """Return whether an error says that memory is exhausted, on a device or on the host."""
    if type(error).__name__ in XLA_ERRORS:
        return STATUS in str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, (ImportError, RuntimeError)) and UNMAPPED.search(str(error)) is not None
    )


def describe_exhaustion(error: BaseException, advice: str) -> str:
    """Return one line: the first of the error's message, and advice."""
    cause = next(iter(str(error).splitlines()), "").strip()[:MAX_CAUSE].rstrip(".")
    return f"memory is exhausted ({cause or type(error).__name__}): {advice}"


@contextlib.contextmanager
def explain_exhaustion(advise: Callable[[], str]) -> Iterator[None]:
    """Raise an error of the block that says that memory is exhausted as MemoryExhausted.

    Other errors pass. advise: returns what takes less memory; called after the error.
    """
    try:
        yield
    except Exception as error:
        if not is_exhaustion(error):
            raise
        try:
            advice = advise()
        except MemoryError:
            advice = "not even enough is left to estimate what would fit"
        raise MemoryExhausted(describe_exhaustion(error, advice)) from error


def explain_exhausted_command(error: BaseException, args: argparse.Namespace) -> str:
    """Return one line if an error of a command says that memory is exhausted, else "".

    args: the command's arguments, some of which may need less.
    """
    if not is_exhaustion(error):
        return ""
    return describe_exhaustion(error, advise_on_arguments(args))


def advise_on_arguments(args: argparse.Namespace) -> str:
    """Return what of a command's arguments takes less memory."""
    changes = []
    for name in ("batch_size", "beams", "length"):
        flag, value = f"--{name.replace('_', '-')}", getattr(args, name, 1)
        if value is None and name == "batch_size":
            changes.append(f"a smaller {flag}")
        elif value is not None and value > 1:
            changes.append(f"{flag} {value // 2} (now {value})")
    if getattr(args, "dtype", "") == "float32":
        changes.append("--dtype bfloat16")
    if limits := read_process_limits():
        changes.append(f"a higher `ulimit -v` (now {min(limits) >> 10} KiB)")
    changes.append("devices with more memory")
    return f"what takes less: {', or '.join(changes)}"
