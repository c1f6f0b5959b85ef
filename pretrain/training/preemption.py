"""SIGTERM and Ctrl-C: the first ends a run after the current step, saved; the second at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType
from typing import Any

import jax


class Preemption:
    """Listens for signals. A context manager, to be entered in the main thread.

    With several processes JAX itself waits for SIGTERM in all of them and lets them agree on a
    step; a handler of this class would hide the signal from it.

    Attributes:
      signal: number of the first signal received, or None.
    """

    def __enter__(self) -> Preemption:
        self.signal: int | None = None
        self.numbers = (
            (signal.SIGTERM, signal.SIGINT) if jax.process_count() == 1 else (signal.SIGINT,)
        )
        self.old_handlers = {
            number: signal.signal(number, self._record_signal) for number in self.numbers
        }
        self.receiver, self.sender = socket.socketpair()
        self.sender.setblocking(False)
        self.old_wakeup_fd = signal.set_wakeup_fd(self.sender.fileno(), warn_on_full_buffer=False)
        self.thread = threading.Thread(
            target=self._await_second_signal, name="second signal", daemon=True
        )
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        signal.set_wakeup_fd(self.old_wakeup_fd)
        self.sender.close()
        self.thread.join()
        self.receiver.close()
        for number, handler in self.old_handlers.items():
            signal.signal(number, handler)

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def _await_second_signal(self) -> None:
        """End the process at the second signal.

        A thread does this because Python's signal handlers do not run while XLA compiles.
        """
        num_signals = 0
        while number := self.receiver.recv(1):  # Empty once the other end is closed.
            num_signals += number[0] in self.numbers
            if num_signals > 1:
                os._exit(128 + number[0])

    def is_requested(self, step: int) -> bool:
        """Return whether to stop after `step`; the answer is the same in every process."""
        if jax.process_count() == 1:
            return self.signal is not None
        from jax.experimental import multihost_utils

        if multihost_utils.reached_preemption_sync_point(step):
            self.signal = self.signal or signal.SIGTERM
            return True
        return False
