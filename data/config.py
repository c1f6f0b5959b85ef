"""The `data` section of a configuration: token store, objective and global batch size."""

from dataclasses import dataclass
from typing import Literal

from data.mixed import Mixed
from data.objectives.masked_lm import MaskedLm
from data.objectives.objective import Objective
from data.rows.ramp import CONSTANT, FULL_BATCH, BatchRamp, Ramp

DEFAULT_OBJECTIVE = MaskedLm()


@dataclass(frozen=True)
class Data:
    """The data of a run."""

    store: str = ""  # Folder (or gs:// path) that `prepare` wrote.
    # What the model learns; its class builds the batches.
    objective: Objective | Mixed = DEFAULT_OBJECTIVE
    batch_size: int = 32  # [rows] Global batch, over all hosts.
    # Smaller batches at the start of the run, or of the phase that sets it.
    batch_ramp: BatchRamp = FULL_BATCH
    # Share of each source, in the manifest's order; (): the manifest's shares.
    rates: tuple[float, ...] = ()
    # Power of the shares: 1 leaves them, below 1 lifts small sources, 0 makes all equal.
    temperature: float = 1.0
    temperature_ramp: Ramp = CONSTANT  # Change of `temperature` over the steps, in 16 stairs.
    # [threads] CPU threads per host that build batches. They take turns, so more help only if
    # reading the store is slow.
    threads: int = 1
    # [batches] Batches built ahead, on each host. Small ones are built several at once.
    prefetch: int = 2
    # What builds batches: tf.data, or Python threads with the same batches. auto: tf.data if
    # TensorFlow is installed.
    feed: Literal["auto", "tfdata", "threads"] = "auto"
    # Refuse a damaged store, or skip the damaged documents.
    on_corrupt: Literal["refuse", "skip"] = "refuse"


def check_data(data: Data, seed: int) -> None:
    """Raise a ValueError unless the settings that belong to no objective are valid."""
    for name in ("batch_size", "threads", "prefetch"):
        if getattr(data, name) < 1:
            raise ValueError(f"data.{name}={getattr(data, name)}: 1 or more")
    if not 0 <= data.temperature <= 100:
        raise ValueError(f"data.temperature={data.temperature:g}: from 0 to 100")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed}: from 0 to 2^63 - 1")


def check_step(step: int) -> None:
    """Raise a ValueError for a step before the first, or beyond those that a run can have."""
    if step < 0:
        raise ValueError(f"step {step}: steps are counted from 0")
    if step >= 1 << 48:  # whose rows int64 counts
        raise ValueError(f"step {step}: there are fewer than 2^48")
