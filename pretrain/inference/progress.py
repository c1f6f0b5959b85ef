"""A line for the person who waits: how many texts are done, how fast, and how long the others will take."""

import sys
import time

from pretrain.workdir.metrics_file import clock

SECONDS = 0.2  # between two drawings
ERASE = "\r\x1b[K"


class Progress:
    """Redrawn in place on a terminal; elsewhere nothing. `hide` it before anything else is written there.

    count: a function that tells the number of all texts, called only where it is shown.
    """

    def __init__(self, count):
        self.out, self.began, self.last, self.shown = (
            sys.stderr,
            time.perf_counter(),
            float("-inf"),
            False,
        )
        self.total = count() if self.out.isatty() else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.hide()

    def show(self, done):
        now = time.perf_counter()
        if self.total is None or now - self.last < SECONDS:
            return
        self.last, seconds = now, max(now - self.began, 1e-9)
        rate = done / seconds
        told = (
            f"  {rate:,.{0 if rate >= 10 else 1}f} texts/s  {clock((self.total - done) / rate)} left"
            if done >= 1
            else ""
        )
        self.out.write(f"{ERASE}{int(done):,}/{self.total:,} texts{told}")
        self.out.flush()
        self.shown = True

    def hide(self):
        if self.shown:
            self.out.write(ERASE)
            self.out.flush()
        self.shown = False
