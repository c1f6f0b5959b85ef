"""What the file of a lease says, read with suspicion: anybody who can write to the workdir may have written it."""

import json
from typing import NamedTuple

from pretrain.distributed import process_identity as process

LARGEST = 64 * 1024  # bytes of a file that is parsed
LONGEST = 80  # characters of a name from the file that are printed


class Holder(NamedTuple):
    """What the file says of the run that holds the lease. start: in clock ticks since boot; since: UTC; heartbeat: number of renewals."""

    owner: str
    host: str
    boot: str
    namespace: str
    pid: int
    start: int
    since: str
    heartbeat: int
    command: str

    @property
    def is_here(self) -> bool:
        """Whether its process numbers are those that this process sees."""
        return (
            bool(self.boot and self.namespace) and (self.boot, self.namespace) == process.machine()
        )

    def __str__(self):
        return f"process {self.pid} on host {_clean(self.host)} since {_clean(self.since)} ({_clean(self.command)})"


class Seen(NamedTuple):
    """One look at the file: its generation, whether it exists, and its holder (None where the content is unreadable)."""

    generation: bytes
    exists: bool
    holder: Holder | None

    @property
    def is_free(self) -> bool:
        """Whether nobody can be writing under this lease."""
        holder = self.holder
        return not self.exists or (
            bool(holder) and holder.is_here and not process.is_alive(holder.pid, holder.start)
        )


def parse(raw: bytes) -> Holder | None:
    """Return the holder that the bytes name; None where they are torn, of another form or out of bounds."""
    try:
        holder = Holder(**json.loads(raw))
    except (ValueError, TypeError, RecursionError):
        return None
    is_typed = all(
        type(value) is kind for value, kind in zip(holder, Holder.__annotations__.values())
    )
    return holder if is_typed and 0 < holder.pid < 2**31 else None


def _clean(text):
    """A string from the file, safe to print."""
    return "".join(char if char.isprintable() else "?" for char in text[:LONGEST])
