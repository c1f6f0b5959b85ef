"""Batches built ahead of the reader, in order, by tf.data or by threads.

`read_ahead` is the one door. Both feeds give the same batches and raise an exception of a batch in
its turn, after the batches before it. Each is a module with a function `read_ahead(plan)`, which is
found by name when it is needed, so that neither imports the other.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from data.members import has_module
from data.rows.tables import Batch
from data.tensorflow_import import check_tensorflow

ENDLESS = int(np.iinfo(np.int64).max)
FEEDS = {"tfdata": "tf_dataset", "threads": "thread_feed"}  # {data.feed: module of this package}
# One call builds batches of up to BUILT_TOKENS tokens: waking a thread and the reader costs as much
# as building many small batches. MAX_BATCHES limits the number of batches of a call.
BUILT_TOKENS, MAX_BATCHES = 1 << 17, 16


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """The batches [start, stop), and how many of them are built ahead.

    build     (first, number) -> {key: [number * rows, ...]}, `number` batches from `first` on,
              concatenated
    spec      {key: (dtype, shape)} of one batch
    rows      rows of a batch
    tokens    tokens of a batch, padding included
    threads   number of threads that call `build`
    prefetch  number of batches that are built ahead
    """

    build: Callable[[int, int], Batch]
    spec: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    start: int
    stop: int
    rows: int
    tokens: int
    threads: int
    prefetch: int

    def count_batches(self, tokens: int) -> int:
        """Return the number of batches that have up to `tokens` tokens together: 1 to 16."""
        return min(max(tokens // self.tokens, 1), MAX_BATCHES)


def choose_feed(feed: str) -> str:
    """Return the feed that `data.feed` stands for on this machine.

    Raises:
      ValueError: it is tf.data, and TensorFlow is not installed.
    """
    if feed == "auto":
        return "tfdata" if has_module("tensorflow") else "threads"
    if feed == "tfdata":
        check_tensorflow("data.feed=tfdata")
    return feed


def read_ahead(plan: BuildPlan, feed: str) -> Iterator[Batch]:
    """Iterate over the batches of a plan through the feed that `data.feed` names."""
    module = importlib.import_module(f"{__package__}.{FEEDS[choose_feed(feed)]}")
    return module.read_ahead(plan)
