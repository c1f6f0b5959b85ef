"""SIGTERM and Ctrl-C: the first ends a run after the step at hand, saved; the second at once."""

import os
import signal
import socket
import threading

import jax


class Stop:
    """Listens while it is entered. A context manager, of the main thread.

    With several processes JAX itself waits for SIGTERM, in any of them, and lets all agree on a step (a handler of ours would hide it).
    """

    def __enter__(self):
        self.signal = None
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

    def __exit__(self, *_):
        signal.set_wakeup_fd(self.before)
        self.mouth.close()
        self.thread.join()
        self.ear.close()
        for number, handler in self.old.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.signal = self.signal or number
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def _listen(self):
        """End the process at the second signal. Python's handlers do not run while the compiler does, so this is not theirs to do."""
        heard = 0
        while number := self.ear.recv(1):  # nothing, once the other end is closed
            heard += number[0] in self.numbers
            if heard > 1:
                os._exit(128 + number[0])

    def requested(self, step):
        """Whether to stop after `step`; the same answer in every process."""
        if jax.process_count() == 1:
            return self.signal is not None
        from jax.experimental import multihost_utils

        if multihost_utils.reached_preemption_sync_point(step):
            self.signal = self.signal or signal.SIGTERM
            return True
        return False
