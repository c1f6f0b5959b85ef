"""What the speedrun measures: the store, the held-out rows and their masks, the same for every run.

Rows of 64 tokens of the held-out documents, 15 % of the tokens predicted: 80 % become
[MASK], 10 % another token, 10 % stay, as in the evaluation of bert_mini. The masks are drawn once.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np

from benchmarks.program_turns import run_to_end
from benchmarks.speedrun.entries import VOCAB
from data.config import Data
from data.objectives.masked_lm import MaskedLm
from data.pipeline import Stream
from data.source import Source
from data.store.reader import Store

TARGET = 0.30  # accuracy on the predicted tokens at which the clock stops
OBJECTIVE = MaskedLm(length=64, max_predictions=10, mask_rate=0.15, rows="windows")
BATCH = 64  # [rows] scored at once
SEED = 0  # of the masks
# Of the store that `prepare` writes from the books: ids, held-out documents and vocabulary.
STORE = "fb0305e8649f6004cf961de58703cf2f"


def prepare_store(corpora: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Write FOLDER/store from the books of `corpora`, unless it exists, and return its path.

    Raises ValueError where the store is another one.
    """
    path = folder / "store"
    if not (path / "manifest.json").exists():
        prepare = [sys.executable, "-m", "pretrain", "prepare", corpora / "books" / "train"]
        run_to_end([*prepare, "--output", path, "--vocab-size", VOCAB])
    check_store(Store.open(path))
    return path


def check_store(store: Any) -> None:
    """Raise ValueError unless a store is the one that all runs read."""
    if store.fingerprint != STORE:
        raise ValueError(
            f"{store.path} is not the store of the speedrun (fingerprint {store.fingerprint[:8]}, "
            f"not {STORE[:8]}): write it with `python -m benchmarks.speedrun prepare` from the "
            "books alone"
        )


def open_heldout_rows(store: Source) -> Stream:
    """Return the held-out rows, of any store."""
    data = Data(objective=OBJECTIVE, batch_size=BATCH, feed="threads")
    return Stream(store, data, split="heldout", seed=SEED)


def write_heldout_arrays(store: Source, path: pathlib.Path) -> None:
    """Write the held-out rows as arrays, for a program without JAX."""
    batches = list(open_heldout_rows(store).iterate_evaluation_batches())
    arrays: dict[str, Any] = {
        key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]
    }
    np.savez(path, **arrays)
