"""SIGTERM and Ctrl-C: the first ends a run after the current step, saved; the second at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType
from typing import Any

import jax


class Stop:
    """Listens for signals. A context manager, to be entered in the main thread.

    With several processes JAX itself waits for SIGTERM in all of them and lets them agree on a
    step; a handler of this class would hide the signal from it.

    Attributes:
      signal: number of the first signal received, or None.
    """

    def __enter__(self) -> Stop:
        self.signal: int | None = None
        self.numbers = (
            (signal.SIGTERM, signal.SIGINT) if jax.process_count() == 1 else (signal.SIGINT,)
        )
        self.old = {number: signal.signal(number, self._note) for number in self.numbers}
        self.ear, self.mouth = socket.socketpair()
        self.mouth.setblocking(False)
        self.before = signal.set_wakeup_fd(self.mouth.fileno(), warn_on_full_buffer=False)
        self.thread = threading.Thread(target=self._listen, name="second signal", daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        signal.set_wakeup_fd(self.before)
        self.mouth.close()
        self.thread.join()
        self.ear.close()
        for number, handler in self.old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def _listen(self) -> None:
        """End the process at the second signal.

        A thread does this because Python's signal handlers do not run while XLA compiles.
        """
        num_signals = 0
        while number := self.ear.recv(1):  # Empty once the other end is closed.
            num_signals += number[0] in self.numbers
            if num_signals > 1:
                os._exit(128 + number[0])

    def requested(self, step: int) -> bool:
        """Return whether to stop after `step`; the answer is the same in every process."""
        if jax.process_count() == 1:
            return self.signal is not None
        from jax.experimental import multihost_utils

        if multihost_utils.reached_preemption_sync_point(step):
            self.signal = self.signal or signal.SIGTERM
            return True
        return False
