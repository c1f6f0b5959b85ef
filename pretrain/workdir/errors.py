"""What reading and writing a workdir raises, and how little of it a person has to see."""

import contextlib
import inspect
import logging
import sys
import traceback

from absl import logging as absl_logging


class DamagedCheckpoint(OSError):
    """What was read is not what was written. Raised with proof only: see evidence.py."""


class NotRestored(OSError):
    """A checkpoint could not be read, and nothing proves that it is damaged."""


class NotSaved(OSError):
    """A checkpoint could not be written."""


@contextlib.contextmanager
def writing(folder):
    """Whatever Orbax and TensorStore raise while they write, under one name that says which folder and what to do."""
    try:
        yield
    except Exception as error:
        raise NotSaved(
            f"{folder}: a checkpoint was not saved ({reason(error)}); those before it are as they were. Mend it, and give the same words again"
        ) from error


@contextlib.contextmanager
def named(path):
    """What goes wrong in writing a file, such as a full disk, with the file's name, which the system leaves out."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def hush():
    """Keep Orbax from telling each failed read and write of its own, sixty lines each: what is raised is enough.

    It logs them from its threads and tasks; and where one read or write fails it abandons the others, whose coroutines complain when they
    are collected, and whose threads call back into an event loop that is closed by then.
    """
    absl_logging.set_verbosity(absl_logging.ERROR)  # it reports each of its threads as a warning
    absl_logging.get_absl_logger().addFilter(_not_of_orbax)  # the same filter is added only once
    logging.getLogger("asyncio").addFilter(_not_of_orbax)
    usual = sys.unraisablehook
    if not getattr(usual, "hushed", False):

        def hook(unraisable):
            if not _abandoned(unraisable):
                usual(unraisable)

        hook.hushed = True
        sys.unraisablehook = hook


def _not_of_orbax(entry):
    """Also of futures that it was given and nobody waits for any more: the error names its folder or TensorStore's format, or passed through it."""
    _, error, trace = entry.exc_info or (None, "", None)
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
    said = " ".join((entry.pathname, entry.getMessage(), str(error), *files))
    return not any(word in said for word in ("orbax", "tensorstore", "OCDBT"))


def _abandoned(unraisable):
    if inspect.iscoroutine(unraisable.object):
        return "orbax" in unraisable.object.cr_code.co_filename
    return unraisable.object is None and str(unraisable.exc_value) == "Event loop is closed"


def reason(error):
    """One line: what happened at the bottom, such as the file that is not there, not what was said about it on the way up."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = (
        next(iter(str(error).splitlines()), "no details")
        .split(" [tensorstore_spec")[0]
        .split(" [source locations")[0]
    )
    if len(text) > 300:  # the cause stands at the end, such as "No space left on device"
        text = f"{text[:140]} ... {text[-150:]}"
    return f"{type(error).__name__}: {text}"
