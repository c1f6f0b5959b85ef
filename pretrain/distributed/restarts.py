"""Starting the processes of a run again when one has died, as `pod` does on a pod: `local --restarts R`.

What ended by itself is not tried again: done, bad words (2), an error or a run that diverged (1), or somebody asked it to stop (SIGTERM,
Ctrl-C). What died of another signal, or hung, is. Failures are counted in a row: a new checkpoint makes them forgotten, and R starts that
bring none are the end.
"""

import itertools
import os
import pathlib
import signal
import sys
import time
from typing import NamedTuple

from data.corpus.paths import is_remote
from pretrain.distributed.watchdog import HUNG

PAUSE, LONGEST = (
    1.0,
    30.0,
)  # seconds before the first start anew, doubled for each failure in a row, and at most
STOPS = (signal.SIGTERM, signal.SIGINT)


class Ending(NamedTuple):
    """How all processes ended: the status of the first that failed, 0 where none did or below 0 for a signal; its number; whether a signal
    was passed on to them."""

    status: int
    process: int = 0
    asked: bool = False

    @property
    def code(self):
        """As a shell tells it."""
        return 128 - self.status if self.status < 0 else self.status

    @property
    def mended(self):
        """Whether another start may help."""
        return not self.asked and (
            self.status == HUNG or (self.status < 0 and -self.status not in STOPS)
        )

    @property
    def why(self):
        """In words, of one that another start may mend."""
        return f"process {self.process} " + (
            "hung" if self.status == HUNG else f"died of {signal.Signals(-self.status).name}"
        )


def supervise(start, tries, words, sleep=time.sleep):
    """Call `start()`, which gives an Ending, until it needs no other start or `tries` in a row brought no new checkpoint; returns the last.

    words: of the verb, with its --workdir.
    """
    failures, saved = 0, newest(words)
    while True:
        ending = start()
        before, saved = saved, newest(words)
        failures = 1 if saved > before else failures + 1
        if not ending.mended or not tries:
            return ending
        if failures > tries:
            say(f"{ending.why}; giving up after {tries} restarts without a new checkpoint")
            return ending
        pause = min(PAUSE * 2 ** (failures - 1), LONGEST)
        where = f"step {saved:,}" if saved >= 0 else "its newest checkpoint, if there is one"
        say(
            f"{ending.why}; restart {failures} of at most {tries} in a row, in {pause:g} s, from {where}"
        )
        sleep(pause)


def newest(words):
    """The newest committed step in the workdir that the words name, or -1 where there is none, or none to be seen from here."""
    named = [after for word, after in itertools.pairwise(words) if word == "--workdir"]
    named += [word.partition("=")[2] for word in words if word.startswith("--workdir=")]
    folder = pathlib.Path(named[-1] if named else "", "checkpoints")
    if not named or is_remote(named[-1]) or not folder.is_dir():
        return -1
    return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
