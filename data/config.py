"""What a run reads: the token store, the objective and the size of the global batch."""

from dataclasses import dataclass
from typing import Literal

from data.mixed import AnyObjective, Mixed
from data.objectives.masked_lm import MaskedLm

DEFAULT_OBJECTIVE = MaskedLm()


@dataclass(frozen=True)
class Data:
    store: str = ""  # Folder (or gs:// path) that `prepare` wrote.
    # What is learned: its class makes batches of rows, and says which.
    objective: AnyObjective | Mixed = DEFAULT_OBJECTIVE
    batch_size: int = 32  # [rows] Size of the global batch, over all hosts.
    # Share of each source of the store, in the order of its manifest; (): the manifest's own shares.
    rates: tuple[float, ...] = ()
    # [threads] CPU threads that build batches, on each host. They wait for each other, so more help only where reading waits.
    threads: int = 1
    # [batches] Batches that wait ready, on each host. Small ones are made several at once and may be more.
    prefetch: int = 2
    # A store with damaged bytes: refuse it, or skip only the documents that they lie in.
    on_corrupt: Literal["refuse", "skip"] = "refuse"
