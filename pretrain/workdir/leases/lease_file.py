"""Access to a lease file, and its content, which anybody who can write there may have written."""

import json
import os
import re
from typing import Any, NamedTuple

import tensorstore

from data.corpus.buckets import explain_reason
from data.corpus.paths import check_scheme, is_remote
from pretrain.processes import process_identity as process
from pretrain.settings.overrides import ConfigError

TIMEOUT = 20.0  # [seconds] for one read or write of the file
MAX_BYTES = 64 * 1024  # [bytes] size of a file that is still parsed
MAX_NAME_LENGTH = 80  # [characters] part of a name from the file that is printed


class LeaseUnreachable(OSError):
    """The lease could not be read or written."""


class Holder(NamedTuple):
    """The run that holds the lease, as the file describes it.

    Attributes:
      namespace: the namespace of its process numbers.
      pid: its process number.
      since: when the lease was acquired, in UTC.
      heartbeat: the number of renewals.
      path: the absolute path or the URL of the workdir; "" in a lease of version 0.2.0.
      inode: the number of the workdir's folder in its file system; 0 if it has none.
    """

    owner: str
    host: str
    boot: str
    namespace: str
    pid: int
    start: int
    since: str
    heartbeat: int
    command: str
    path: str = ""
    inode: int = 0

    def writes_elsewhere(self, workdir: str) -> bool:
        """Return whether this lease was copied to `workdir` with the workdir that it is of.

        The copy has another path and another folder. A folder that was moved, or that two paths
        lead to, has one number; a URL in a bucket is the identity of what it names.
        """
        path, inode = identify_folder(workdir)
        if not self.path or path == self.path or is_remote(path) != is_remote(self.path):
            return False
        return is_remote(path) or (0 not in (inode, self.inode) and inode != self.inode)

    @property
    def is_here(self) -> bool:
        """Whether the holder's process numbers are those that this process sees."""
        return (
            bool(self.boot and self.namespace)
            and (self.boot, self.namespace) == process.identify_machine()
        )

    def __str__(self) -> str:
        host, since, command = map(_make_printable, (self.host, self.since, self.command))
        return f"process {self.pid} on host {host} since {since} ({command})"


class LeaseState(NamedTuple):
    """The state of the file at one moment.

    Attributes:
      exists: whether the file exists.
      holder: the run that holds the lease; None if the content is unreadable.
    """

    generation: bytes
    exists: bool
    holder: Holder | None

    @property
    def is_free(self) -> bool:
        """Whether no run can be writing under this lease."""
        holder = self.holder
        return not self.exists or (
            holder is not None and holder.is_here and not process.is_alive(holder.pid, holder.start)
        )


def identify_folder(workdir: str) -> tuple[str, int]:
    """Return (path without links, number of the folder) of a workdir; (URL, 0) in a bucket."""
    if is_remote(workdir):
        return workdir.rstrip("/"), 0
    path = os.path.realpath(workdir)
    try:
        return path, os.stat(path).st_ino
    except OSError:  # it does not exist yet
        return path, 0


def parse_holder(raw: bytes) -> Holder | None:
    """Return the holder in the bytes of a file; None if they are malformed or out of bounds."""
    try:
        holder = Holder(**json.loads(raw))
    except (ValueError, TypeError, RecursionError):
        return None
    is_typed = all(
        type(value) is kind for value, kind in zip(holder, Holder.__annotations__.values())
    )
    return holder if is_typed and 0 < holder.pid < 2**31 else None


def _make_printable(text: str) -> str:
    """Return a string from the file, safe to print."""
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_NAME_LENGTH])


def open_store(workdir: str, name: str) -> Any:
    """Return the tensorstore.KvStore whose key `name` is the lease file of a workdir.

    File systems and gs:// have atomic conditional writes, which a lease needs.

    Raises:
      ConfigError: the file is not a regular one, because a pipe would block reads; or the URL names
        no bucket.
      ValueError: the URL is not gs://.
    """
    if not is_remote(workdir):
        folder = os.path.abspath(workdir)
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not os.path.isfile(path):
            raise ConfigError(f"{path} is not a regular file. Remove it, or name another --workdir")
        spec = {"driver": "file", "path": f"{folder}/", "file_io_locking": {"mode": "os"}}
    else:
        check_scheme(workdir)
        found = re.fullmatch(r"gs://([^/]+)/*(.*?)/*", workdir)
        if found is None:
            raise ConfigError(f"{workdir} names no bucket; expected gs://BUCKET/FOLDER")
        spec = {"driver": "gcs", "bucket": found[1], "path": found[2] and f"{found[2]}/"}
    return await_result(tensorstore.KvStore.open(spec), workdir)


def await_result(future: Any, workdir: str) -> Any:
    """Return the result of a TensorStore future. Raises LeaseUnreachable for any error.

    TensorStore raises ValueError, RuntimeError, TimeoutError and others, by the storage's status.
    """
    try:
        return future.result(timeout=TIMEOUT)
    except Exception as error:
        raise make_unreachable(workdir, error) from error


def make_unreachable(workdir: str, error: Exception) -> LeaseUnreachable:
    """Return a LeaseUnreachable with the first line of an error of TensorStore."""
    first_line = next(iter(str(error).splitlines()), "") or f"no answer within {TIMEOUT:g} s"
    reason = explain_reason(first_line.split(" [source locations")[0])
    return LeaseUnreachable(f"the lease of {workdir} could not be read or written ({reason})")
