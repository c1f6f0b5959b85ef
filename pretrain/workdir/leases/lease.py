"""The lease of a workdir: at most one run writes there.

The file `lease` in the workdir names the run that holds the lease. TensorStore changes the file by
compare-and-swap only: under a lock of the operating system on local and network file systems, with
a generation precondition on gs://. The holder renews its lease every HEARTBEAT seconds. On the
holder's machine, a second run asks the kernel whether the holder is alive. On another machine, it
watches the file, and takes over after STALE seconds without a change. Clocks of different machines
are never compared.

The holder counts from the start of its last successful renewal. A second run counts from its first
look at the same renewal, which is later. So by the time that another run may take over, the holder
no longer relies on its lease without reading the file (`Lease.check_held`).
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Self

from etils import epath

from data.corpus.paths import is_remote
from pretrain.processes import process_identity as process
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.leases.lease_file import (
    MAX_BYTES,
    TIMEOUT,
    Holder,
    LeaseState,
    LeaseUnreachable,
    await_result,
    identify_folder,
    make_unreachable,
    open_store,
    parse_holder,
)

NAME = "lease"
HEARTBEAT = 10.0  # [seconds] between two renewals
STALE = 60.0  # [seconds] without a renewal, after which a run on another machine may take over


class LeaseLost(OSError):
    """This run no longer holds the lease: it may not write to the workdir."""


class Lease:
    """A context manager that acquires the lease of a workdir on entry, and releases it on exit.

    Entry raises ConfigError if another run holds the lease. A lease that is not entered, as in all
    processes of a run but the first, counts as held and writes nothing.
    """

    def __init__(
        self,
        workdir: epath.PathLike,
        command: str,
        on_loss: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Describe this process as the future holder; nothing is read or written.

        Args:
          workdir: a local path or a gs:// URL.
          on_loss: called once with a message when the lease is lost, by the thread that notices it.
        """
        boot, namespace = process.identify_machine()
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        pid = os.getpid()
        start = process.read_start_time(pid) or 0
        self._workdir = str(workdir)
        self._me = Holder(
            uuid.uuid4().hex, socket.gethostname(), boot, namespace, pid, start, since, 0, command
        )
        self._on_loss = on_loss
        # A tensorstore.KvStore. Processes other than the first never enter their lease.
        self._store: Any = None
        self._generation = self._lost = None
        self._has_trouble = self._made_folder = False
        self._renewed = 0.0
        self._released, self._losing = threading.Event(), threading.RLock()
        self._thread = threading.Thread(target=self._renew_periodically, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._made_folder = not (is_remote(self._workdir) or os.path.exists(self._workdir))
        self._store = open_store(self._workdir, NAME)
        if self._made_folder:
            with contextlib.suppress(OSError):  # the first write says what is wrong
                os.makedirs(self._workdir, exist_ok=True)
        path, inode = identify_folder(self._workdir)
        self._me = self._me._replace(path=path, inode=inode)
        self._acquire_lease()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._released.set()
        self._thread.join(2 * TIMEOUT)
        try:
            state = self._read_file()
            if self._is_mine(state):
                self._write_file(None, state.generation)
        except LeaseUnreachable as failure:
            _print_notice(
                f"{failure}. The lease stays: on this machine it is free once this process has "
                f"ended, on other machines after {STALE:g} s"
            )
        if self._made_folder and os.path.isdir(self._workdir) and not os.listdir(self._workdir):
            os.rmdir(self._workdir)  # a refused run leaves nothing

    def check_held(self) -> None:
        """Raise LeaseLost if the lease is lost.

        It costs nothing while renewals succeed, and one read of the file while they are late.
        """
        if (
            self._store is not None
            and not self._lost
            and read_boottime() - self._renewed > STALE / 2
        ):
            self._check_owner()
        if self._lost:
            # The thread that noticed the loss holds this lock, and may be ending the process.
            with self._losing:
                raise LeaseLost(self._lost)

    def verify_held(self) -> None:
        """Read the file, and raise LeaseLost if the lease is lost. For use before a checkpoint."""
        if self._store is not None and not self._lost:
            self._check_owner()
        self.check_held()

    def is_held(self) -> bool:
        """Return whether `check_held` raises nothing."""
        try:
            self.check_held()
        except LeaseLost:
            return False
        return True

    # ---- acquire -------------------------------------------------------------

    def _acquire_lease(self) -> None:
        """Acquire the lease, or raise ConfigError if another run holds it."""
        state = self._read_file()
        if state.holder and not state.is_free and state.holder.writes_elsewhere(self._workdir):
            _print_notice(
                f"{self._workdir} is a copy of a workdir that {state.holder} writes to; this run "
                "goes on in the copy"
            )
        elif not state.is_free:
            if state.holder and state.holder.is_here:
                raise self._make_refusal(state.holder)
            state = self._watch_holder(state)
        if not self._renew_lease(state.generation) or not self._is_mine(self._read_file()):
            raise self._make_refusal(self._read_file().holder)

    def _watch_holder(self, first: LeaseState) -> LeaseState:
        """Wait until the lease of another machine is gone, or unchanged for STALE seconds.

        Raises ConfigError if it changes, because then its holder is alive.
        """
        holder = first.holder or "an unknown process (its lease cannot be read)"
        _print_notice(
            f"{self._workdir} is in use by {holder}. Waiting up to {STALE:g} s for a sign of life; "
            "without one, this run takes over"
        )
        watched, tick = 0.0, STALE / 30
        while watched < STALE:
            began = time.monotonic()
            time.sleep(tick)
            state = self._read_file()
            if not state.exists:
                break
            if state.generation != first.generation:
                raise self._make_refusal(state.holder)
            # A process that was suspended in between saw nothing, so its time does not count.
            watched += min(time.monotonic() - began, 2 * tick)
        _print_notice(
            f"{self._workdir}: no sign of life within {watched:.3g} s, so this run takes over"
            if state.exists
            else f"{self._workdir} is free"
        )
        return state

    def _make_refusal(self, holder: Holder | None) -> ConfigError:
        return ConfigError(
            f"{self._workdir} is in use by {holder or 'another process'}. Wait for it to end, stop "
            "it, or name another folder. The lease of a process that died is free at once on "
            f"its own machine, and after {STALE:g} s on others: give the same command again"
        )

    # ---- renew ---------------------------------------------------------------

    def _renew_periodically(self) -> None:
        """Renew the lease every HEARTBEAT seconds until it is released or lost."""
        while not self._lost and not self._released.wait(HEARTBEAT):
            try:
                if not self._renew_lease(self._generation):
                    state = self._read_file()
                    # An earlier write may have succeeded although its answer never arrived.
                    if self._is_mine(state):
                        self._generation = state.generation
                    else:
                        self._handle_loss(state)
                self._has_trouble = False
            except LeaseUnreachable as error:
                if not self._has_trouble:
                    _print_notice(
                        f"{error}. This run continues while it can read that it holds the lease"
                    )
                self._has_trouble = True

    def _check_owner(self) -> None:
        """Read who holds the lease.

        A file that cannot be read is accepted until STALE seconds after the last renewal.
        """
        try:
            state = self._read_file()
            if not self._is_mine(state):
                self._handle_loss(state)
        except LeaseUnreachable as error:
            if read_boottime() - self._renewed > STALE:
                self._mark_lost(
                    f"{error}, and it was not renewed for {STALE:g} s, so another run may hold it"
                )

    def _handle_loss(self, state: LeaseState) -> None:
        """Mark the lease as lost, unless this run has released it itself."""
        if not self._released.is_set():
            event = (
                f"was taken by {state.holder or 'an unknown process'}"
                if state.exists
                else "was removed"
            )
            self._mark_lost(f"the lease of {self._workdir} {event}")

    def _mark_lost(self, reason: str) -> None:
        """Mark the lease as lost and call `on_loss`, once."""
        with self._losing:  # two threads may notice at the same moment
            if not self._lost:
                message = (
                    f"{reason}. This run stops and writes nothing more; its last checkpoint stays"
                )
                self._lost = message
                self._on_loss(message)

    def _is_mine(self, state: LeaseState) -> bool:
        return state.holder is not None and state.holder.owner == self._me.owner

    # ---- the file ------------------------------------------------------------

    def _renew_lease(self, generation: Any) -> bool:
        """Write the lease if the file still has this generation, and return whether it had."""
        began = read_boottime()
        self._me = self._me._replace(heartbeat=self._me.heartbeat + 1)
        written = self._write_file(json.dumps(self._me._asdict(), indent=1) + "\n", generation)
        if written:
            self._generation, self._renewed = written, began
        return bool(written)

    def _write_file(self, text: str | None, generation: Any) -> Any:
        """Write the file, or delete it for None, if it still has this generation.

        Returns the new generation, or an empty value if the file has another one.
        """
        return await_result(
            self._store.write(NAME, text, if_equal=generation), self._workdir
        ).generation

    def _read_file(self) -> LeaseState:
        """Return the state of the file; a content of more than MAX_BYTES bytes is not fetched."""
        try:
            found = self._store.read(NAME, byte_range=slice(MAX_BYTES, MAX_BYTES + 1)).result(
                timeout=TIMEOUT
            )
            raw = b""
        except ValueError:  # out of range: the file is not longer than MAX_BYTES
            found = await_result(self._store.read(NAME), self._workdir)
            raw = found.value
        except Exception as error:
            raise make_unreachable(self._workdir, error) from error
        return LeaseState(found.stamp.generation, found.state != "missing", parse_holder(raw))


def read_boottime() -> float:
    """Return the seconds of a clock that includes the time in which the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
