"""End a run that hangs within a few seconds of its limit, with the stacks of its threads.

A run that hangs would occupy a pod until somebody notices. The goodput ledger
(pretrain/workdir/goodput.py) reports each phase of the loop to the watchdog, whose thread checks
how long the phase lasts. A step runs on the devices asynchronously, but the loop waits for the
metrics of the previous one. A thread of Orbax finishes checkpoints, and the watchdog checks it as
well. Only time in which the watchdog itself runs counts: a stopped process (Ctrl-Z) or a sleeping
laptop does not hang.

In a run of several processes the one that hangs announces it, and the others end with it, with
their own stacks: they wait for it in vain.

Code that holds Python's global interpreter lock stops the watchdog, too, and is not detected.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

from pretrain.host.terminal import escape

if TYPE_CHECKING:
    from etils import epath

    from pretrain.settings import Limits

# Exit status of a run that hung: EX_TEMPFAIL of sysexits.h, "the user is invited to try again".
# A run exits with it in no other case.
HUNG = 75
TICK = 0.5  # seconds between two checks
EXIT_LIMIT = 15.0  # seconds that a process has to end after its work
REPORT_LIMIT = 4.0  # most seconds for the report, since a terminal or a disk may be what hangs
PEER_TICK = 1.0  # seconds between two looks for another process that hangs
SAVE_THREAD = "save_finalize"  # the thread in which Orbax (0.12) finishes a save


class Peers(NamedTuple):
    """How a process and the others of its run learn of a hang.

    Attributes:
      announce: publishes what exceeds its limit here.
      find_hung: returns what another process has announced, "" if none has. It may block.
      leave: called before the process ends.
    """

    announce: Callable[[str], None]
    find_hung: Callable[[], str]
    leave: Callable[[], None]


class Watchdog:
    """A context manager that ends the process if one phase of the loop exceeds its limit."""

    def __init__(self, limits: Limits, path: epath.Path, peers: Peers | None = None) -> None:
        """Prepare to watch; entering the context starts the threads.

        Args:
          limits: seconds for each phase.
          path: file for the stacks, which are also written to stderr.
          peers: the other processes; None for a single process. The announcement, the report and
            the leaving have REPORT_LIMIT seconds together.
        """
        self.limits, self.path, self.peers = limits, path, peers
        self.count = itertools.count()
        self.enter_phase("start")
        self.over = threading.Event()
        self.ending = threading.Lock()
        self.thread = threading.Thread(target=self._check_limits, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self.thread.start()
        if self.peers:
            # A thread of its own, as the coordinator may not answer. Nothing waits for it.
            threading.Thread(target=self._check_peers, args=(self.peers,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.over.set()
        self.thread.join()

    def enter_phase(self, phase: str) -> None:
        """Note that the loop begins a phase, a field of `Limits`, perhaps once more."""
        # The number distinguishes a phase that is repeated from one that lasts.
        self.current = (phase, next(self.count))

    def _check_limits(self) -> None:
        ages, clock = {}, time.monotonic()
        while not self.over.wait(TICK):
            elapsed, clock = time.monotonic() - clock, time.monotonic()
            current = self.current
            activities = ((current, current[0]), (find_save_thread(), "save"))
            phases = {activity: phase for activity, phase in activities if activity}
            ages = {
                activity: ages.get(activity, 0.0) + min(elapsed, 2 * TICK) for activity in phases
            }
            for activity, phase in phases.items():
                limit = getattr(self.limits, phase)
                if limit and ages[activity] > limit:
                    cause = (
                        f"'{phase}' has lasted {ages[activity]:,.0f} s; its limit is "
                        f"watchdog.{phase}={limit:g}"
                    )
                    advice = (
                        "if the run was only slow, raise the limit, or set it to 0 for no limit"
                    )
                    self._end_process(cause, advice, self.peers and self.peers.announce)

    def _check_peers(self, peers: Peers) -> None:
        while not self.over.wait(PEER_TICK):
            if cause := peers.find_hung():
                self._end_process(cause, "the stacks of that process show what hangs")

    def _end_process(
        self, cause: str, advice: str, announce: Callable[[str], None] | None = None
    ) -> NoReturn:
        """Report the stacks and end the process, even if parts of the report hang."""
        with self.ending:  # never released: the process ends
            try:
                stack_text = format_stacks()
                message = (
                    f"error: hung: {cause}. The stacks of all threads are above and in "
                    f"{self.path}. This process ends with status {HUNG}. Repeat the same command "
                    f"to continue from the last checkpoint; {advice}\n"
                )
                tasks = [
                    lambda: write_unbuffered(sys.__stderr__, stack_text + message),
                    lambda: self.path.write_text(stack_text),
                ]
                if announce:
                    tasks.insert(0, lambda: announce(cause))
                if self.peers:
                    tasks.append(self.peers.leave)
                run_within(REPORT_LIMIT, tasks)
            finally:
                os._exit(HUNG)


def run_within(seconds: float, tasks: Sequence[Callable[[], Any]]) -> None:
    """Call all `tasks` at once, each in a thread, and return after `seconds` at the latest."""
    threads = [threading.Thread(target=call_quietly, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def exit_soon(status: int) -> None:
    """End the process with `status` after EXIT_LIMIT seconds unless it ends by itself before.

    Python waits for all threads at its end, and Orbax leaves one running forever if its folder was
    removed during a save.
    """
    timer = threading.Timer(EXIT_LIMIT, os._exit, [status])
    timer.daemon = True
    timer.start()


def find_save_thread() -> threading.Thread | None:
    """Return the thread that finishes a checkpoint in the background, or None."""
    return next((thread for thread in threading.enumerate() if thread.name == SAVE_THREAD), None)


def format_stacks() -> str:
    """Return the stack of each thread as text.

    It reads no source files, since the disk may be what hangs. `faulthandler` would hold the global
    interpreter lock while it writes.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    sections = []
    for ident, frame in sys._current_frames().items():
        calls = reversed(list(traceback.walk_stack(frame)))
        lines = [
            f'  File "{caller.f_code.co_filename}", line {number}, in {caller.f_code.co_name}'
            for caller, number in calls
        ]
        sections.append("\n".join([f"thread {names.get(ident, ident)}:", *lines]))
    return "\n\n".join(sections) + "\n\n"


def write_unbuffered(stream: TextIO | None, text: str) -> None:
    """Write all of `text` past Python's buffers, whose locks a thread that hangs may hold."""
    if stream is None:  # as in a process without a terminal
        return
    data = escape(text).encode(errors="replace")
    while data:
        data = data[os.write(stream.fileno(), data) :]


def call_quietly(task: Callable[[], Any]) -> None:
    """Call `task` and ignore its errors, such as a full disk: the exit status reports the hang."""
    with contextlib.suppress(Exception):
        task()
