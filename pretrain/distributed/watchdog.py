"""A run that hangs ends, within a few seconds of its limit and with the stacks of its threads: what hangs costs a pod until somebody looks.

The ledger tells the watchdog what the loop does (`goodput`); a thread of its own looks whether it lasts. A step runs on the devices behind
the loop's back, but the loop waits there for the metrics of the one before; a checkpoint is finished by a thread of Orbax, which is looked
at as well. Only time in which the watchdog itself runs is counted: a process that was stopped (Ctrl-Z) or a laptop that slept is not hung.

What keeps Python's lock for itself stops the watchdog, too; nothing here sees it.
"""

import contextlib
import itertools
import os
import sys
import threading
import time
import traceback
from typing import TextIO, cast

HUNG = 75  # the exit status, of no other ending: EX_TEMPFAIL of sysexits.h, "the user is invited to try again"
TICK = 0.5  # seconds between two looks
LEAVING = 15.0  # seconds that a process has to end when its work is over
LEAVE = 4.0  # seconds at most for telling of it; a terminal or a disk may be what hangs
SAVER = "save_finalize"  # the thread in which Orbax (0.12) finishes a save


class Watchdog:
    """Watches as long as it is entered. A context manager.

    path: what `write_text` writes the stacks to, besides stderr. farewell: called when it ends the process; both have LEAVE seconds.
    """

    def __init__(self, limits, path, farewell=lambda: None):
        self.limits, self.path, self.farewell = limits, path, farewell
        self.count = itertools.count()
        self.to("start")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def to(self, part):
        """The loop begins `part`, a field of Limits, or begins it anew."""
        self.doing = (
            part,
            next(self.count),
        )  # numbered, so that what is done again and again is not taken for something that lasts

    def _watch(self):
        ages, clock = {}, time.monotonic()
        while not self.over.wait(TICK):
            passed, clock = time.monotonic() - clock, time.monotonic()
            doing = self.doing
            now = {thing: part for thing, part in ((doing, doing[0]), (saver(), "save")) if thing}
            ages = {thing: ages.get(thing, 0.0) + min(passed, 2 * TICK) for thing in now}
            for thing, part in now.items():
                limit = getattr(self.limits, part)
                if limit and ages[thing] > limit:
                    self._leave(part, ages[thing], limit)

    def _leave(self, part, seconds, limit):
        """End the process, whatever else of it hangs."""
        try:
            told = stacks()
            line = (
                f"error: hung: '{part}' has lasted {seconds:,.0f} s, its limit is watchdog.{part}={limit:g}. The stacks of all threads are above "
                f"and in {self.path}. This process ends with status {HUNG}: give the same words again to go on from the last checkpoint; "
                f"where it was only slow, with a higher limit, or 0 for none\n"
            )
            tasks = (
                lambda: write(cast(TextIO, sys.__stderr__).fileno(), told + line),
                lambda: self.path.write_text(told),
                self.farewell,
            )
            threads = [
                threading.Thread(target=quietly, args=(task,), daemon=True) for task in tasks
            ]
            for thread in threads:
                thread.start()
            end = time.monotonic() + LEAVE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        finally:
            os._exit(HUNG)


def leave_soon(status):
    """All is done: the process ends within LEAVING seconds, with this status where it does not end by itself.

    Python waits for all threads at its end, and Orbax leaves one behind for ever where its folder went while it saved.
    """
    timer = threading.Timer(LEAVING, os._exit, [status])
    timer.daemon = True
    timer.start()


def saver():
    """The thread that finishes a checkpoint in the background, or None."""
    return next((thread for thread in threading.enumerate() if thread.name == SAVER), None)


def stacks():
    """Where each thread is, as text. Reads no source: the disk may be what hangs; and faulthandler's writing would hold Python's lock."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        calls = reversed(list(traceback.walk_stack(frame)))
        lines = [
            f'  File "{one.f_code.co_filename}", line {number}, in {one.f_code.co_name}'
            for one, number in calls
        ]
        parts.append("\n".join([f"thread {names.get(ident, ident)}:", *lines]))
    return "\n\n".join(parts) + "\n\n"


def write(descriptor, text):
    """All of `text`, past Python's buffers and their locks, which a thread that hangs may hold."""
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]


def quietly(task):
    with contextlib.suppress(
        Exception
    ):  # a full disk, a closed terminal: it ends with the status that says so
        task()
