"""Signals that ask a run to end: it saves after the current step, and a second command ends it.

`pretrain.processes.restarts` names them: SIGTERM and Ctrl-C, SIGHUP for a terminal that is lost,
and what batch systems send.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from types import FrameType
from typing import Any

import jax

from pretrain.processes.restarts import COMMANDS, list_heard_stops

# Seconds in which further signals are the first one: `timeout` signals its command and then the
# group, and a terminal that closes is reported by the kernel and by the shell.
SAME_SIGNAL = 1.0
AGREEMENT = 2.0  # seconds in which all processes hear that one of them asks for the end


class Preemption:
    """Listens for signals. A context manager, to be entered in the main thread.

    With several processes JAX itself waits for SIGTERM in all of them and lets them agree on a
    step; a handler of this class would hide the signal from it.

    Attributes:
      signal: number of the first signal received, or None.
      failure: the error of the input because of which the run ends, or None.
    """

    def __enter__(self) -> Preemption:
        self.signal: int | None = None
        self.failure: Exception | None = None
        self.numbers = list_heard_stops()
        if jax.process_count() > 1:
            self.numbers.remove(signal.SIGTERM)
        self.over = threading.Event()
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
        self.over.set()
        self.sender.close()
        self.thread.join()
        self.receiver.close()
        for number, handler in self.old_handlers.items():
            signal.signal(number, handler)

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        if jax.process_count() > 1 and self.signal is None:
            os.kill(os.getpid(), signal.SIGTERM)
        self.signal = self.signal or number

    def _await_second_signal(self) -> None:
        """End the process at the second command to end, unless it comes with the first.

        A thread does this because Python's signal handlers do not run while XLA compiles.
        """
        is_first = True
        while received := self.receiver.recv(4096):  # Empty once the other end is closed.
            commands = [number for number in received if number in {*self.numbers} & {*COMMANDS}]
            if commands and not is_first:
                os._exit(128 + commands[0])
            if commands:
                is_first = False
                self.over.wait(SAME_SIGNAL)
                with contextlib.suppress(BlockingIOError):
                    self.receiver.recv(4096, socket.MSG_DONTWAIT)

    def note_failure(self, failure: Exception) -> None:
        """Let the run end after the current step, saved, because of an error of its input.

        With several processes it may take a step more until all agree, for which this one still has
        batches. The pause lets the others hear of it before it has used them up.
        """
        self.failure = failure
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)
            self.over.wait(AGREEMENT)

    def is_requested(self, step: int) -> bool:
        """Return whether to stop after `step`; the answer is the same in every process."""
        if jax.process_count() == 1:
            return self.signal is not None or self.failure is not None
        from jax.experimental import multihost_utils

        if multihost_utils.reached_preemption_sync_point(step):
            self.signal = self.signal or signal.SIGTERM
            return True
        return False
