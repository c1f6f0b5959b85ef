"""Restart the processes of a run on this machine after a failure: `local --restarts R`.

`pod` does the same on a pod. Processes that ended by themselves are not restarted: after success,
wrong arguments (status 2), an error or divergence (1), and a requested stop (`STOPS`). Processes
that died of another signal, or hung, are. Failures are counted in a row: a new checkpoint resets
the count, and R restarts without one are the limit.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from data.corpus.paths import is_remote
from pretrain.processes.watchdog import HUNG

# Seconds before the first restart, doubled for each failure in a row, and the longest pause.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# The signals that ask a run to save and end. A person or a scheduler commands by the first three,
# whose second one ends the run at once. The others report what comes: the terminal or the
# connection is lost, or a limit of the batch system is near.
COMMANDS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
STOPS = (*COMMANDS, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


class Ending(NamedTuple):
    """How all processes of a run ended.

    Attributes:
      status: of the first process that failed: 0 if none did, negative for a signal.
      process: index of that process.
      was_stopped: whether a signal to stop was forwarded to the processes.
    """

    status: int
    process: int = 0
    was_stopped: bool = False

    @property
    def exit_code(self) -> int:
        """The exit status as a shell reports it."""
        return 128 - self.status if self.status < 0 else self.status

    @property
    def is_restartable(self) -> bool:
        """Whether a restart may help."""
        return not self.was_stopped and (
            self.status == HUNG or (self.status < 0 and -self.status not in STOPS)
        )

    @property
    def failure_reason(self) -> str:
        """The reason for a restart."""
        return f"process {self.process} " + (
            "hung" if self.status == HUNG else f"died of {name_signal(-self.status)}"
        )


def list_heard_stops() -> list[signal.Signals]:
    """Return the signals of `STOPS` but for those that the parent ignores, such as `nohup`.

    SIGTERM and SIGINT are always heard: a shell without job control ignores SIGINT for a command
    that ends in `&`.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return [
        number
        for number in STOPS
        if number in always or signal.getsignal(number) is not signal.SIG_IGN
    ]


def name_signal(number: int) -> str:
    """Return the name of a signal, or its number: most real-time signals have no name."""
    names = {int(number): number.name for number in signal.Signals}
    return names.get(number, f"signal {number}")


def supervise_restarts(
    start: Callable[[], Ending],
    tries: int,
    argv: Sequence[str],
    sleep: Callable[[float], None] = time.sleep,
) -> Ending:
    """Run processes until they need no restart, and return how they ended.

    Args:
      start: runs the processes until all have ended.
      tries: largest number of restarts in a row without a new checkpoint.
    """
    failures, saved_step = 0, find_saved_step(argv)
    while True:
        ending = start()
        old_step, saved_step = saved_step, find_saved_step(argv)
        failures = 1 if saved_step > old_step else failures + 1
        if not ending.is_restartable or not tries:
            return ending
        if failures > tries:
            print_message(
                f"{ending.failure_reason}; "
                f"giving up after {tries} restarts without a new checkpoint"
            )
            return ending
        pause = min(FIRST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE)
        checkpoint = f"step {saved_step:,}" if saved_step >= 0 else "the newest checkpoint, if any"
        print_message(
            f"{ending.failure_reason}; restart {failures} of at most {tries} in a row, in "
            f"{pause:g} s, from {checkpoint}"
        )
        sleep(pause)


def find_saved_step(argv: Sequence[str]) -> int:
    """Return the newest committed step in the --workdir of the arguments `argv`.

    It is -1 if there is none, or the folder cannot be listed from here.
    """
    workdirs = [value for word, value in itertools.pairwise(argv) if word == "--workdir"]
    workdirs += [word.partition("=")[2] for word in argv if word.startswith("--workdir=")]
    folder = pathlib.Path(workdirs[-1] if workdirs else "", "checkpoints")
    if not workdirs or is_remote(workdirs[-1]) or not folder.is_dir():
        return -1
    return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)


def print_message(text: str) -> None:
    """Print a line with the time of day to stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
