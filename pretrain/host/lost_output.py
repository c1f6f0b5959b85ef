"""Output is not the run: a stream that fails is dropped, and the work goes on.

The reader of a pipe leaves, a terminal hangs up, the disk under a log is full, or a stream was
closed before the start. `main` guards the standard error of every verb, and the standard output of
the verbs whose results are files; training guards both wherever it is called from. A run notes in
its workdir what it has lost (`note_losses`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from etils import epath

NOTE = "lost_output-{process}.txt"  # in a workdir, one for each process of the run
NAMES = {0: "standard input", 1: "standard output", 2: "standard error"}


class LostStream(NamedTuple):
    """A stream that was dropped: its name, why, and `time.time()` then."""

    stream: str
    reason: str
    time: float


_losses: list[LostStream] = []  # of this process, in order
_lock = threading.Lock()


class GuardedStream:
    """A text stream that is dropped when it fails, and else behaves as the one below it."""

    def __init__(self, stream: TextIO, name: str, is_own: bool = False) -> None:
        """Guard `stream`.

        Args:
          name: what the note of its loss calls it.
          is_own: whether the descriptor belongs to this program, which then closes it to libraries
            in C and to child processes, too, once it has failed.
        """
        self.stream, self.name, self.is_own, self.is_lost = stream, name, is_own, False

    def write(self, text: str) -> int:
        """Write the text unless the stream is lost; return its number of characters."""
        if self.is_lost:
            return len(text)
        try:
            try:
                self.stream.write(text)
            except UnicodeEncodeError:  # such as LANG=C
                encoding = self.stream.encoding or "ascii"
                self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except BlockingIOError:  # The reader is slow and does not block the writer: it misses this.
            pass
        except (OSError, ValueError) as error:  # ValueError: a library has closed it
            self._drop(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream unless it is lost."""
        if self.is_lost:
            return
        try:
            self.stream.flush()
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        with _lock:
            if self.is_lost:
                return
            self.is_lost = True
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            _losses.append(LostStream(self.name, reason, time.time()))
        if self.is_own:
            discard_output(self.stream)
        if self.name == NAMES[1]:
            print(f"{self.name} is lost ({reason}): the work goes on without it", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        if name == "stream":  # before `__init__`, as a profiler or `copy` sees it
            raise AttributeError(name)
        return getattr(self.stream, name)


def discard_output(stream: TextIO) -> None:
    """Send what is written to the stream's descriptor nowhere, its buffered text included."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        _fill_descriptor(stream.fileno(), os.O_WRONLY)


def _fill_descriptor(descriptor: int, mode: int) -> None:
    """Open the null device as `descriptor`."""
    null = os.open(os.devnull, mode)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)


def open_missing_streams() -> None:
    """Open the null device instead of standard streams that were closed at the start (`2>&-`).

    Otherwise the next file that is opened gets the free descriptor, and what libraries write to
    the standard error ends up in it.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        target: int | str = os.devnull
        try:
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            _fill_descriptor(descriptor, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            target = descriptor
            if descriptor:
                _losses.append(
                    LostStream(NAMES[descriptor], "it was closed at the start", time.time())
                )
        if getattr(sys, name) is None:
            stream = open(target, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - open until the process ends
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def guard_output(stdout: bool = True, is_own: bool = False) -> tuple[TextIO, TextIO]:
    """Drop the standard error from now on when it fails, and the standard output if `stdout`.

    Returns:
      The two streams as they were, with which a caller may restore them.
    """
    before = sys.stdout, sys.stderr
    if stdout:
        sys.stdout = guard_stream(sys.stdout, NAMES[1], is_own)
    sys.stderr = guard_stream(sys.stderr, NAMES[2], is_own)
    return before


@contextlib.contextmanager
def drop_failed_output() -> Iterator[None]:
    """Drop the standard output and error in the block when they fail.

    The caller's streams are as before afterwards, and their loss is forgotten.
    """
    count, before = len(_losses), guard_output()
    own = {
        name
        for name, stream in zip((NAMES[1], NAMES[2]), before, strict=True)
        if not is_guarded(stream)
    }
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        _losses[count:] = [lost for lost in _losses[count:] if lost.stream not in own]


def guard_stream(stream: Any, name: str, is_own: bool = False) -> Any:
    """Return a stream that is dropped when it fails; one that is guarded already stays."""
    return stream if stream is None or is_guarded(stream) else GuardedStream(stream, name, is_own)


def has_failed(stream: TextIO) -> bool:
    """Return whether what was written to a stream cannot leave its buffer."""
    try:
        stream.flush()
    except OSError:
        return True
    return False


def is_guarded(stream: Any) -> bool:
    """Return whether a stream, or the one below it, is dropped when it fails."""
    return any(isinstance(one, GuardedStream) for one in (stream, getattr(stream, "stream", None)))


def note_losses(workdir: epath.PathLike, process: int, step: int, first: int = 0) -> int:
    """Add the streams that are lost to the note in a workdir.

    Args:
      process: the index of this process.
      step: the last step that the run has finished.
      first: the number of losses that are noted already.

    Returns:
      The number of losses that are noted now.
    """
    new = _losses[first:]
    _add_lines(
        workdir,
        process,
        [
            (
                loss.time,
                f"after step {step:,}: {loss.stream} is lost ({loss.reason}); the run goes on "
                "without it",
            )
            for loss in new
        ],
    )
    return first + len(new)


def note_error(workdir: epath.PathLike, process: int, step: int, error: BaseException) -> None:
    """Add to the note in a workdir why the run has ended, which its output may not show."""
    text = f"after step {step:,}: the run ends with {type(error).__name__}: {error}"
    _add_lines(workdir, process, [(time.time(), " ".join(text.split()))])


def _add_lines(workdir: epath.PathLike, process: int, lines: Iterable[tuple[float, str]]) -> None:
    """Add (`time.time()`, text) to the note of a process, which is made for the first of them."""
    new = "".join(
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))} {text}\n"
        for seconds, text in lines
    )
    if new:
        # launch.sh imports this module before any package is installed.
        from etils import epath

        from data.store.atomic import write_atomically

        path = epath.Path(workdir) / NOTE.format(process=process)
        write_atomically(path, (path.read_text() if path.exists() else "") + new)
