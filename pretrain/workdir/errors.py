"""The errors of reading and writing a workdir, and a filter for the logs of the libraries below."""

import contextlib
import inspect
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from absl import logging as absl_logging
from etils import epath


class DamagedCheckpoint(OSError):
    """The data read is not the data written. Raised only with proof: see evidence.py."""


class NotRestored(OSError):
    """A checkpoint could not be read, and nothing proves that it is damaged."""


class NotSaved(OSError):
    """A checkpoint could not be written."""


@contextlib.contextmanager
def translate_write_errors(folder: epath.PathLike) -> Iterator[None]:
    """Raise any error of the block as NotSaved, with the folder, the cause and the remedy.

    Orbax and TensorStore raise many types of errors when they cannot write.
    """
    try:
        yield
    except Exception as error:
        raise NotSaved(
            f"{folder}: a checkpoint was not saved ({summarize_error(error)}). Earlier checkpoints "
            "are unchanged. Remove the cause, and give the same command again."
        ) from error


def silence_orbax() -> None:
    """Silence the logs of Orbax for each failed read and write; the raised error is enough.

    Orbax logs such errors, sixty lines each, from its threads and tasks. When one read or write
    fails, it abandons the others: their coroutines complain when they are garbage-collected, and
    their threads call back into an event loop that is closed.
    """
    absl_logging.set_verbosity(absl_logging.ERROR)  # Orbax reports each of its threads as a warning
    absl_logging.get_absl_logger().addFilter(
        _is_foreign_record
    )  # the same filter is added only once
    logging.getLogger("asyncio").addFilter(_is_foreign_record)
    previous_hook = sys.unraisablehook
    if not getattr(previous_hook, "hushed", False):

        def report_unraisable(unraisable: Any) -> None:
            if not _is_abandoned(unraisable):
                previous_hook(unraisable)

        report_unraisable.hushed = True  # pyright: ignore[reportFunctionMemberAccess]  # a mark for the next call
        sys.unraisablehook = report_unraisable


def _is_foreign_record(record: logging.LogRecord) -> bool:
    """Return whether a log record comes from neither Orbax nor TensorStore.

    It comes from them if the file that logs it, the message, the error or the traceback names one
    of the two or TensorStore's file format. This includes futures that nobody waits for any more.
    """
    _, error, trace = record.exc_info or (None, "", None)
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
    text = " ".join((record.pathname, record.getMessage(), str(error), *files))
    return not any(name in text for name in ("orbax", "tensorstore", "OCDBT"))


def _is_abandoned(unraisable: Any) -> bool:
    """Return whether an unraisable error is of a read or write that Orbax abandoned."""
    if inspect.iscoroutine(unraisable.object):
        return "orbax" in unraisable.object.cr_code.co_filename
    return unraisable.object is None and str(unraisable.exc_value) == "Event loop is closed"


def summarize_error(error: BaseException) -> str:
    """Return one line that describes the root cause of an error, such as a missing file."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = (
        next(iter(str(error).splitlines()), "no details")
        .split(" [tensorstore_spec")[0]
        .split(" [source locations")[0]
    )
    if len(text) > 300:  # the cause is at the end, such as "No space left on device"
        text = f"{text[:140]} ... {text[-150:]}"
    return f"{type(error).__name__}: {text}"
