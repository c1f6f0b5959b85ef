"""The time of a run: seconds of wall-clock time by phase, over all starts, in `goodput.json`.

A run is in one phase at any moment, as its first process sees it, so the phases add up to the
wall-clock time. Work in the background, such as the writing of a checkpoint, counts only while the
loop waits for it.

    start     from the command to the first step: imports, mesh, token store, parameters
    compile   the first step of each start, including its tracing and compilation
    data      the loop waits for its next batch
    step      the loop computes
    save      a checkpoint is started, or awaited at the end
    evaluate  the held-out part, including the first compilation
    lost      data, step, save and evaluate after the checkpoint from which a start or the guard
              continues
    down      from the last sign of life of a killed process (at most a second before its end) to
              the next start

The time between a run that ended by itself, finished or stopped on request, and the next start is
not counted.
"""

import contextlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from etils import epath

from data.store.atomic import write_atomically

PHASES = ("start", "compile", "data", "step", "save", "evaluate", "lost", "down")
# Phases whose work is repeated if no checkpoint contains it.
REPEATED_PHASES = ("data", "step", "save", "evaluate")
NAME = "goodput.json"


class Ledger:
    """The ledger of a run, continued over its starts. Leaving the context stops its clock."""

    def __init__(
        self,
        workdir: epath.PathLike | None,
        start_time: float,
        step: int,
        on_phase: Callable[[str], Any] = lambda phase: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read the ledger of earlier starts, and start the clock.

        Args:
          workdir: None keeps the ledger in memory.
          start_time: `time.time()` when this start began.
          on_phase: called with the name of each phase as it begins, such as by `watchdog.Watchdog`.
          may_write: called before each write of the file; False skips the write.
        """
        self.path = None if workdir is None else epath.Path(workdir) / NAME
        # [seconds] between writes; an object store accepts about one write of a file a second
        self.every = 30.0 if "://" in str(workdir) else 1.0
        self.error, self.on_phase, self.may_write = None, on_phase, may_write
        self.lock, self.stopped = threading.Lock(), threading.Event()
        known = read_ledger(self.path) if self.path else None
        self.starts, self.marks = 1, {}
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.phase, self.clock = "start", time.monotonic() - max(time.time() - start_time, 0.0)
        if known:
            self.starts, self.seconds = known["starts"] + 1, known["seconds"]
            self.marks = {int(step): mark for step, mark in known["marks"].items()}
            if not known["ended"]:
                self.seconds["down"] += max(start_time - known["until"], 0.0)
            self.roll_back(step)

    def __enter__(self) -> Self:
        self._write_file()
        self.thread = threading.Thread(target=self._write_periodically, name="goodput", daemon=True)
        if self.path:
            self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        self.stopped.set()
        if self.path:
            self.thread.join()
        try:
            self._write_file(ended=kind is None)
        except OSError as error:
            if kind is None:
                raise
            # The run's own error goes on.
            print(f"not written as the run ended: {error}", file=sys.stderr)

    def enter_phase(self, phase: str) -> str:
        """Start a phase, and return the previous one."""
        with self.lock:
            previous = self.phase
            self._add_elapsed()
            self.phase = phase
        self.on_phase(phase)
        return previous

    @contextlib.contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        """Count the time of the block as a phase."""
        previous = self.enter_phase(phase)
        try:
            yield
        finally:
            self.enter_phase(previous)

    def mark_checkpoint(self, step: int, remaining_steps: Iterable[int]) -> None:
        """Record that the checkpoint of `step` contains all work so far.

        The seconds up to each checkpoint are recorded, so that the time after it can be counted as
        lost if a start continues from it.

        Raises:
          OSError: the ledger could not be written since the last call.
        """
        if self.error:
            raise self.error
        with self.lock:
            self._add_elapsed()
            self.marks[step] = {phase: self.seconds[phase] for phase in REPEATED_PHASES}
            remaining = {step, *remaining_steps}
            self.marks = {
                marked: mark for marked, mark in sorted(self.marks.items()) if marked in remaining
            }

    def roll_back(self, step: int) -> None:
        """Count all time after the checkpoint of `step` as lost: the run continues from there."""
        with self.lock:
            self._add_elapsed()
            earlier = {marked: mark for marked, mark in self.marks.items() if marked <= step}
            mark = earlier[max(earlier)] if earlier else dict.fromkeys(REPEATED_PHASES, 0.0)
            self.marks = earlier
            for phase in REPEATED_PHASES:
                self.seconds["lost"] += self.seconds[phase] - mark[phase]
                self.seconds[phase] = mark[phase]

    def format_summary(self) -> str:
        """Return the ledger as one line of text."""
        with self.lock:
            self._add_elapsed()
            return format_goodput(self.seconds, self.starts)

    def _add_elapsed(self) -> None:
        """Add the time since the last call to the current phase. The lock must be held."""
        now = time.monotonic()
        self.seconds[self.phase] += now - self.clock
        self.clock = now

    def _write_periodically(self) -> None:
        """Write the file every `every` seconds until the ledger is left."""
        while not self.stopped.wait(self.every):
            try:
                self._write_file()
            except OSError as error:  # such as a full disk; the next `mark_checkpoint` raises it
                self.error = error
                return

    def _write_file(self, ended: bool = False) -> None:
        if self.path is None or not self.may_write():
            return
        with self.lock:
            self._add_elapsed()
            content = {
                "starts": self.starts,
                "until": time.time(),
                "ended": ended,
                "seconds": dict(self.seconds),
                "marks": dict(self.marks),
            }
        write_atomically(self.path, json.dumps(content) + "\n")


def read_ledger(
    path: epath.PathLike, consequence: str = "a new ledger is started"
) -> dict[str, Any] | None:
    """Return the ledger in a file, None if there is none or it is unreadable.

    An unreadable ledger is reported on the standard output; it does not stop a run.
    """
    path = epath.Path(path)
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        seconds, marks = content["seconds"], content["marks"]
        rows = [(PHASES, seconds), *((REPEATED_PHASES, mark) for mark in marks.values())]
        numbers = [content["starts"], content["until"], *map(int, marks)]
        for phases, row in rows:
            numbers += [row[phase] for phase in phases]
        if (
            seconds.keys() == set(PHASES)
            and "ended" in content
            and all(map(math.isfinite, numbers))
        ):
            return content
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        pass
    if consequence:
        print(f"{path} cannot be read; {consequence}")
    return None


def format_goodput(seconds: dict[str, float], starts: int) -> str:
    """Return one line: the share of computing in the time that the run was up, and each phase.

    Args:
      seconds: {phase: seconds}.
      starts: the number of starts.
    """
    up = sum(seconds.values()) - seconds["down"]
    phases = ", ".join(f"{name} {seconds[name]:,.1f}" for name in PHASES if seconds[name] >= 0.05)
    goodput = seconds["step"] / max(up, 1e-9)
    plural = "s" * (starts > 1)
    return f"goodput {goodput:.1%} of {up:,.1f} s in {starts} start{plural}: {phases}"
