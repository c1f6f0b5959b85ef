"""What reading a damaged checkpoint raises, and how little of it a person has to see."""

import contextlib
import gc
import inspect
import sys


class DamagedCheckpoint(OSError):
    """What was read is not what was written."""


@contextlib.contextmanager
def damage():
    """Whatever Orbax and TensorStore raise on damaged files (bare Exception, KeyError, JSONDecodeError ...) under one name."""
    reason = None
    with _quiet():
        try:
            yield
        except Exception as error:
            reason = _reason(error)
        if reason:  # `error` and its frames are let go of by here, and with them the reads that it left behind
            gc.collect()
            raise DamagedCheckpoint(reason)


def _reason(error):
    """One line: what happened at the bottom, such as the file that is not there, not what was said about it on the way up."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__


@contextlib.contextmanager
def _quiet():
    """Where one read fails, Orbax abandons the others, in coroutines and threads: each would print sixty lines of its own."""
    usual = sys.unraisablehook

    def hook(unraisable):
        late = unraisable.object is None and str(unraisable.exc_value) == "Event loop is closed"
        if not (inspect.iscoroutine(unraisable.object) or late):
            usual(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
