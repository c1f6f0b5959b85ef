"""The lease of a workdir: at most one run writes in it.

The file `lease` in the workdir names the run that holds it. Every change of the file is a compare-and-swap by TensorStore: under a lock of
the operating system on local and network file systems, by a generation precondition on gs://. The holder renews its lease every HEARTBEAT
seconds. On the holder's machine a second run asks the kernel whether the holder is alive. Elsewhere it watches the file, and takes over
when nothing changes for STALE seconds. No clocks of different machines are compared.

The holder counts from the start of its last successful renewal, a second run from its first look at the same renewal, which is later: by
the time that somebody may take the lease, the holder no longer trusts it without a look (`Lease.check`).
"""

import json
import os
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import tensorstore

from data.corpus.paths import is_remote
from pretrain.distributed import process_identity as process
from pretrain.overrides import ConfigError
from pretrain.workdir.lease_file import LARGEST, Holder, Seen, parse

NAME = "lease"
HEARTBEAT = 10.0  # seconds between two renewals
STALE = 60.0  # seconds without a renewal after which a run on another machine may take over
TIMEOUT = 20.0  # seconds for one read or write of the file


class LeaseLost(OSError):
    """The workdir is not this run's any more: nothing may be written there."""


class LeaseUnreachable(OSError):
    """The lease could not be read or written."""


class Lease:
    """A context manager: on entry it takes the lease of `workdir` or raises ConfigError, on exit it gives the lease back.

    on_loss: called once with a message by the thread that notices that the lease is lost, which then goes on.
    A lease that was not entered (process 1 and up of a run of several) is always held and writes nothing.
    """

    def __init__(
        self, workdir, command: str, on_loss: Callable[[str], None] = lambda message: None
    ):
        boot, namespace = process.machine()
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        pid = os.getpid()
        start = process.start_time(pid) or 0
        self._workdir = str(workdir)
        self._me = Holder(
            uuid.uuid4().hex, socket.gethostname(), boot, namespace, pid, start, since, 0, command
        )
        self._on_loss = on_loss
        self._store: Any = None  # a tensorstore.KvStore, while the lease is held
        self._generation = self._lost = None
        self._has_trouble = self._made_folder = False
        self._renewed = 0.0
        self._released, self._losing = threading.Event(), threading.RLock()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self):
        self._store = self._open()
        if self._store is None:
            _report(
                f"{self._workdir} is not protected against a second run: leases work on file systems and on gs:// only"
            )
            return self
        self._acquire()
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        if self._store is None:
            return
        self._released.set()
        self._thread.join(2 * TIMEOUT)
        try:
            seen = self._read()
            if self._is_mine(seen):
                self._write(None, seen.generation)
        except LeaseUnreachable as failure:
            _report(
                f"{failure}. The lease stays; on this machine it is free once this process has ended, elsewhere after {STALE:g} s"
            )
        if self._made_folder and os.path.isdir(self._workdir) and not os.listdir(self._workdir):
            os.rmdir(self._workdir)  # nothing was written: a run that was refused leaves nothing

    def check(self) -> None:
        """Raise LeaseLost where the lease is lost. Costs nothing while renewals succeed, one read of the file while they are late."""
        if self._store is not None and not self._lost and boottime() - self._renewed > STALE / 2:
            self._look()
        if self._lost:
            with (
                self._losing
            ):  # the thread that noticed may be ending the process: one error is enough
                raise LeaseLost(self._lost)

    def verify(self) -> None:
        """Read the file, and raise LeaseLost where the lease is lost: before a checkpoint is saved."""
        if self._store is not None and not self._lost:
            self._look()
        self.check()

    def is_held(self) -> bool:
        """Whether `check` finds nothing wrong."""
        try:
            self.check()
        except LeaseLost:
            return False
        return True

    # ---- taking it -----------------------------------------------------------

    def _open(self):
        """The store whose key NAME is the lease, or None for a kind of storage without atomic conditional writes."""
        if not is_remote(self._workdir):
            folder = os.path.abspath(self._workdir)
            path = os.path.join(folder, NAME)
            if os.path.lexists(path) and not os.path.isfile(path):  # a pipe would block the read
                raise ConfigError(
                    f"{path} is not a regular file. Remove it, or name another --workdir"
                )
            self._made_folder = not os.path.exists(folder)
            return _result(
                tensorstore.KvStore.open(
                    {"driver": "file", "path": f"{folder}/", "file_io_locking": {"mode": "os"}}
                ),
                self._workdir,
            )
        found = re.fullmatch(r"gs://([^/]+)/*(.*?)/*", self._workdir)
        if not found:
            return None
        spec = {"driver": "gcs", "bucket": found[1], "path": found[2] and f"{found[2]}/"}
        return _result(tensorstore.KvStore.open(spec), self._workdir)

    def _acquire(self):
        seen = self._read()
        if not seen.is_free:
            if seen.holder and seen.holder.is_here:
                raise self._refusal(seen.holder)
            seen = self._watch(seen)
        if not self._swap(seen.generation) or not self._is_mine(self._read()):
            raise self._refusal(self._read().holder)

    def _watch(self, first):
        """Wait until the lease `first` of another machine is gone or has not changed for STALE seconds. Raise ConfigError when it changes."""
        who = str(first.holder) if first.holder else "an unknown process (its lease cannot be read)"
        _report(
            f"{self._workdir} is in use by {who}. Waiting up to {STALE:g} s for a sign of life; without one, this run takes over"
        )
        watched, tick = 0.0, STALE / 30
        while watched < STALE:
            began = time.monotonic()
            time.sleep(tick)
            seen = self._read()
            if not seen.exists:
                break
            if seen.generation != first.generation:
                raise self._refusal(seen.holder)
            watched += min(
                time.monotonic() - began, 2 * tick
            )  # while this process is stopped, it sees nothing
        _report(
            f"{self._workdir}: no sign of life within {watched:.3g} s, so this run takes over"
            if seen.exists
            else f"{self._workdir} is free"
        )
        return seen

    def _refusal(self, holder):
        return ConfigError(
            f"{self._workdir} is in use by {holder or 'another process'}. Wait for it to end, stop it, or name another --workdir. "
            f"The lease of a process that died is free at once on its own machine, and after {STALE:g} s on others: give the same command again"
        )

    # ---- keeping it ----------------------------------------------------------

    def _keep(self):
        while not self._lost and not self._released.wait(HEARTBEAT):
            try:
                if not self._swap(self._generation):
                    seen = self._read()
                    if self._is_mine(
                        seen
                    ):  # an earlier write succeeded although its answer never came
                        self._generation = seen.generation
                    else:
                        self._give_up(seen)
                self._has_trouble = False
            except LeaseUnreachable as error:
                if not self._has_trouble:
                    _report(
                        f"{error}. This run goes on while it can read that the lease is its own"
                    )
                self._has_trouble = True

    def _look(self):
        """Read whose the lease is. A file that cannot be read is accepted until STALE seconds after the last renewal."""
        try:
            seen = self._read()
            if not self._is_mine(seen):
                self._give_up(seen)
        except LeaseUnreachable as error:
            if boottime() - self._renewed > STALE:
                self._lose(
                    f"{error}, and it was not renewed for {STALE:g} s, so another run may hold it"
                )

    def _give_up(self, seen):
        if not self._released.is_set():  # this run has not given it back itself
            event = (
                f"was taken by {seen.holder or 'an unknown process'}"
                if seen.exists
                else "was removed"
            )
            self._lose(f"the lease of {self._workdir} {event}")

    def _lose(self, reason):
        with self._losing:  # two threads may notice at the same moment
            if not self._lost:
                message = (
                    f"{reason}. This run stops and writes nothing more; its last checkpoint stays"
                )
                self._lost = message
                self._on_loss(message)

    def _is_mine(self, seen):
        return seen.holder is not None and seen.holder.owner == self._me.owner

    # ---- the file ------------------------------------------------------------

    def _swap(self, generation):
        """Write the lease where the file is still of `generation`, and return whether it was."""
        began = boottime()
        self._me = self._me._replace(heartbeat=self._me.heartbeat + 1)
        written = self._write(json.dumps(self._me._asdict(), indent=1) + "\n", generation)
        if written:
            self._generation, self._renewed = written, began
        return bool(written)

    def _write(self, text, generation):
        """Write the file, or delete it for None, where it is still of `generation`; returns the new generation, nothing where it is not."""
        return _result(self._store.write(NAME, text, if_equal=generation), self._workdir).generation

    def _read(self):
        """Look at the file; content beyond LARGEST bytes is not fetched."""
        try:
            found = self._store.read(NAME, byte_range=slice(LARGEST, LARGEST + 1)).result(
                timeout=TIMEOUT
            )
            raw = b""
        except ValueError:  # out of range: it is no longer than that
            found = _result(self._store.read(NAME), self._workdir)
            raw = found.value
        except Exception as error:
            raise _unreachable(self._workdir, error) from error
        return Seen(found.stamp.generation, found.state != "missing", parse(raw))


def boottime() -> float:
    """Return seconds on a clock that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _result(future, workdir):
    try:
        return future.result(timeout=TIMEOUT)
    except Exception as error:  # TensorStore raises ValueError, RuntimeError, TimeoutError and others by the status of the storage
        raise _unreachable(workdir, error) from error


def _unreachable(workdir, error):
    reason = next(iter(str(error).splitlines()), "") or f"no answer within {TIMEOUT:g} s"
    return LeaseUnreachable(
        f"the lease of {workdir} could not be read or written ({reason.split(' [source locations')[0]})"
    )


def _report(text):
    print(text, file=sys.stderr, flush=True)
