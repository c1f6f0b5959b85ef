"""Commands in processes of their own, some at a time. One that fails does not stop the others."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pretrain.processes.child_process import make_environment, make_words
from pretrain.processes.restarts import list_heard_stops

INTERVAL = 0.1  # seconds between two looks at the processes


class VerbCall(NamedTuple):
    """A verb with its arguments.

    Attributes:
      argv: the verb and its arguments.
      log: the file to which its output is appended.
    """

    argv: Sequence[str]
    log: str


class JobQueue:
    """Runs jobs, at most `width` at a time, until all have ended or a signal asks them to.

    A signal to stop reaches the running jobs, which save and end, and no further job starts. They
    die with this process.
    """

    def __init__(
        self, jobs: Mapping[str, VerbCall], width: int, report: Callable[[str, int | None], None]
    ) -> None:
        """Describe the queue; nothing runs yet.

        Args:
          jobs: {name: job}, in the order in which they start.
          width: number of jobs at a time.
          report: called with a name and None when a job starts, and with its exit status when it
            ends; the status is negative for a signal.
        """
        self.jobs, self.width, self.report = jobs, width, report
        self.signals: list[int] = []  # those that asked to stop, in order
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._num_sent: dict[str, int] = {}  # of the signals, to each running job

    def run(self) -> dict[str, int]:
        """Run the jobs; return {name: exit status} of those that have started."""
        statuses: dict[str, int] = {}
        waiting = list(self.jobs)
        handlers = {
            number: signal.signal(number, lambda number, frame: self.signals.append(number))
            for number in list_heard_stops()
        }
        try:
            while self._running or (waiting and not self.signals):
                while waiting and not self.signals and len(self._running) < self.width:
                    self._start(waiting.pop(0))
                self._forward_signals()
                for name, process in list(self._running.items()):
                    if (status := process.poll()) is not None:
                        del self._running[name]
                        statuses[name] = status
                        self.report(name, status)
                time.sleep(INTERVAL)
        finally:
            for process in self._running.values():
                process.kill()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return statuses

    def _start(self, name: str) -> None:
        job = self.jobs[name]
        with open(job.log, "ab") as log:
            self._running[name] = subprocess.Popen(
                make_words(job.argv),
                env=make_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this process only, which forwards it once
            )
        self._num_sent[name] = 0
        self.report(name, None)

    def _forward_signals(self) -> None:
        """Send each running job the signals that it has not got, also one that has just started."""
        for name, process in self._running.items():
            for number in self.signals[self._num_sent[name] :]:
                process.send_signal(number)
                self._num_sent[name] += 1
