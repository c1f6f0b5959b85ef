"""A progress line on a terminal: how many texts or images are done, how fast, and the time left."""

import sys
import time
from collections.abc import Callable
from typing import Self

from pretrain.host.terminal import erase_line, is_redrawable
from pretrain.workdir.metrics_file import format_duration

SECONDS = 0.2  # between two updates


class Progress:
    """A line redrawn in place on a terminal; nothing is printed elsewhere.

    Call `hide` before anything else is printed.
    """

    def __init__(self, count: Callable[[], int], noun: str = "texts") -> None:
        """Start the clock.

        Args:
          count: returns the number of all texts, called only on a terminal.
        """
        self.noun = noun
        self.out, self.shown = sys.stderr, False
        self.began, self.last = time.perf_counter(), float("-inf")
        self.total = count() if is_redrawable(self.out) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.hide()

    def show(self, done: float) -> None:
        """Show that `done` of them are done, unless the last update is too recent."""
        now = time.perf_counter()
        if self.total is None or now - self.last < SECONDS:
            return
        self.last, seconds = now, max(now - self.began, 1e-9)
        rate, speed = done / seconds, ""
        if done >= 1:
            digits = 0 if rate >= 10 else 1
            speed = (
                f"  {rate:,.{digits}f} {self.noun}/s  "
                f"{format_duration((self.total - done) / rate)} left"
            )
        erase_line(self.out)
        self.out.write(f"{int(done):,}/{self.total:,} {self.noun}{speed}")
        self.out.flush()
        self.shown = True

    def hide(self) -> None:
        """Erase the line."""
        if self.shown:
            erase_line(self.out)
            self.out.flush()
        self.shown = False
