"""Batches as a function of seed and step: the same rows in any process, on any number of hosts.

Example g = step * batch_size + i of a run takes row permute(g mod n) of epoch g div n, where n is
the number of rows of its source of the mixture; its masks, spans or pairs are hashes of (seed,
source, epoch, row). Rows on lanes continue each other instead: data/rows/lanes.py. The step is the
only state, so a run resumes at any step at once, and each host builds only its own rows.
`Stream.build_batch` is the definition, in NumPy; a feed only runs it ahead of time (read_ahead.py).

A run whose batch size changes at step s continues at the next row that it has not read: from there
on, g = locate_rows(s) + (step - s) * batch_size + i. The number g is a position of the order.

B rows of the batch   S sources of the mixture   N batches
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from data import batch_spec
from data.config import Data, check_data, check_step
from data.members import call_later
from data.read_ahead import ENDLESS, BuildPlan, choose_feed, read_ahead
from data.rows import hashing, order
from data.rows.mixture import Mixture, check_least_share, check_rates, strip_common_folders
from data.rows.permutation import permute_indices
from data.rows.tables import Batch
from data.source import Source
from data.store.mapped import read_checked
from data.store.split import Split

# What only some runs need: rows that continue each other.
Lanes = call_later("data.rows.lanes:Lanes")
restart_rows = call_later("data.rows.lanes:restart_rows")

ORDER_BLOCK = 4096  # positions of the order that are looked up together


class Stream:
    """The batches of one split of a source.

    rows            rows in an epoch, over all sources of the mixture
    tokens_per_row  ids of a row that the encoder reads, padding included
    """

    def __init__(self, source: Source, data: Data, *, split: str = "train", seed: int = 0) -> None:
        """Open the rows of a split; `seed` decides order, mixture and masks.

        Raises ValueError where the settings are invalid or the objective cannot learn from the
        source.
        """
        check_data(data, seed)
        choose_feed(data.feed)  # refuse a feed that is missing now, not at the first batch
        self.data, self.seed = data, seed
        self.objective: Any = data.objective
        self.path, self.name = source.path, f"the {split} split of {source.path}"
        found = source.open_rows(split, data.objective)
        self.table, self.sources = found.table, found.sources
        folder = found.split.mapped_folder if isinstance(found.split, Split) else None
        self.build = read_checked(found.build, folder)
        self.build_plain = read_checked(found.build_plain or found.build, folder)
        self.split, self.vocabulary, drop = found.split, found.vocabulary, found.drop_repeats
        self.drop_repeats, self.restore = drop and read_checked(drop, folder), found.restore
        self.num_rows, self.tokens_per_row = self.table.count, self.objective.axis_sizes()["L"]
        self.rows_S = np.diff(self.table.offsets)
        self.order, self.shift_S = found.order, np.zeros(len(self.rows_S), np.int64)
        self.start_at_row(0, 0)

    def start_at_row(self, step: int, row: int) -> None:
        """Let the batch of `step` begin with example `row` of the run, whatever came before it.

        Raises:
          ValueError: the rows are on lanes, whose number is the batch size, and `row` shows that
            the batch size has changed.
        """
        self.row_shift = row - step * self.data.batch_size
        if self.row_shift and self.lane_order:
            raise ValueError(
                f"data.batch_size={self.data.batch_size}: rows on lanes need the batch size "
                "that the run began with"
            )
        self.get_block_keys = functools.lru_cache(2 * self.data.threads)(self.draw_block_keys)

    def locate_rows(self, step: Any) -> Any:
        """Return the number of the first example of a step, or of an array of steps."""
        return step * self.data.batch_size + self.row_shift

    @property
    def streams(self) -> dict[str, Stream]:
        """{"": this stream}, as a mixture has {part: its stream}."""
        return {"": self}

    def find_rates(self) -> tuple[list[float], list[str]]:
        """Return the rate of each source, its share to the power of the temperature; its name."""
        shares, names = self.data.rates, [part.name for part in self.sources]
        shares = shares or [part.rate for part in self.sources]
        check_rates(shares, names)
        return [share and share**self.data.temperature for share in shares], names

    @functools.cached_property
    def lane_order(self) -> Any:
        """The `Lanes` of rows in training; None for shuffled rows."""
        if self.order != "lanes":
            return None
        rates, names = self.find_rates()
        try:
            return Lanes(rates, self.table.whole_S, self.data.batch_size, names)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    @functools.cached_property
    def source_mixture(self) -> Mixture | None:
        """The order of the sources in training; None for a single source."""
        rates, names = self.find_rates()
        # A store's own rates are its sizes: a tiny source has a row a block.
        if self.data.rates or self.data.temperature != 1:
            check_least_share(rates, names)
        short = getattr(self.table, "short", ())
        for name, rate, rows in zip(names, rates, self.rows_S):
            if rate > 0 and (rows == 0 or name in short):
                raise ValueError(
                    f"{self.name}: the source {name!r} holds less text than one row of "
                    f"{self.objective.name}, but its rate is {rate:g}: leave it out, give it the "
                    "rate 0, or shorten the rows"
                )
        key = hashing.derive_keys(self.seed, order.MIXTURE_KEY)
        return Mixture(rates, key) if len(names) > 1 else None

    def load_rows(self, position_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (source, epoch of the source, row of the table), int64 [B] each, at positions."""
        position_B = np.asarray(position_B, np.int64)
        if self.lane_order:
            source_B, epoch_B, row_B = self.lane_order(*np.divmod(position_B, self.data.batch_size))
            return source_B, epoch_B, self.table.offsets[source_B] + row_B
        source_B, number_B = (
            self.source_mixture(position_B)
            if self.source_mixture
            else (np.zeros_like(position_B), position_B)
        )
        epoch_B, within_B = np.divmod(number_B + self.shift_S[source_B], self.rows_S[source_B])
        row_B = permute_indices(
            within_B,
            self.rows_S[source_B],
            hashing.derive_keys(self.seed, order.ORDER_KEY, source_B, epoch_B),
        )
        return source_B, epoch_B, self.table.offsets[source_B] + row_B

    def build_batch(self, step: int, lo: int = 0, hi: int | None = None, number: int = 1) -> Batch:
        """Return rows [lo, hi) of the global batch of `step`, as the batch spec says.

        With `number`, return the rows of that many batches from `step` on, concatenated.
        """
        lo, hi = self.slice_share(lo, hi)
        check_step(step)
        steps = -(-ORDER_BLOCK // (hi - lo))
        draws = []
        for current in range(step, step + number):
            row_NB, key_NB = self.get_block_keys(current // steps, steps, lo, hi)
            draws.append((row_NB[current % steps], key_NB[current % steps]))
        row_B, key_B = (np.concatenate(arrays) for arrays in zip(*draws))
        rates = self.compute_rates(np.arange(step, step + number), np.arange(lo, hi))
        batch = self.build(row_B, key_B, *rates)
        if self.objective.zero_state_rate:
            restart_rows(self.objective, batch, key_B)
        return batch

    def compute_rates(self, step_N: np.ndarray, place_B: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the mask rate of the rows at places of the batches of steps; () if constant."""
        ramp, draw = self.objective.mask_ramp, self.objective.draw_rates
        if draw is not None:
            key_N = hashing.derive_keys(self.seed, order.RATE_KEY, step_N)
            return (draw(key_N, place_B / self.data.batch_size).ravel(),)
        if ramp is None or ramp.is_constant:
            return ()
        return (np.repeat(ramp.compute_values(step_N, self.objective.mask_rate), len(place_B)),)

    def draw_block_keys(
        self, block: int, steps: int, lo: int, hi: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return `draw_keys` of rows [lo, hi) of N = `steps` batches: [N, B] each.

        These are many small operations, which cost hardly more for many rows.
        """
        position_N = self.locate_rows(block * steps + np.arange(steps))
        # Negative positions come before the row that `start_at_row` began with.
        position_NB = np.maximum(position_N[:, None] + np.arange(lo, hi), 0)
        row_B, key_B = self.draw_keys(position_NB.ravel())
        row_NB, key_NB = row_B.reshape(position_NB.shape), key_B.reshape(position_NB.shape)
        row_NB.flags.writeable = key_NB.flags.writeable = False  # they are cached
        return row_NB, key_NB

    def draw_keys(self, position_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at positions of the order, and the keys of their draws.

        Returns:
          row_B: int64 [B], numbers of rows of the table.
          key_B: uint64 [B], keys of their masks, spans or pairs.
        """
        repeats, dupe_factor = self.objective.repeats, self.objective.dupe_factor
        position_B, repeat_B = np.divmod(position_B, repeats)
        source_B, epoch_B, row_B = self.load_rows(position_B)
        version_B = epoch_B % dupe_factor if dupe_factor else epoch_B
        key_B = hashing.derive_keys(self.seed, order.DRAW_KEY, source_B, version_B, row_B)
        return row_B, key_B if repeats == 1 else hashing.derive_keys(key_B, repeat_B)

    @functools.cached_property
    def evaluation_ends_S(self) -> np.ndarray:
        """Number of evaluation batches up to the last one of each source: int64 [S]."""
        return np.cumsum(-(-self.rows_S // self.data.batch_size))

    @property
    def num_evaluation_batches(self) -> int:
        """Number of batches that hold each row of the split once, with one source in each."""
        return int(self.evaluation_ends_S[-1]) if len(self.evaluation_ends_S) else 0

    def describe_evaluation_batch(self, index: int) -> tuple[str, int]:
        """Return (name of the source of evaluation batch `index`, number of its rows in it)."""
        source_N, _, row_NB = self.find_evaluation_rows(np.array([index]), 0, self.data.batch_size)
        names = strip_common_folders([part.name for part in self.sources])
        return names[source_N[0]], int((row_NB < self.rows_S[source_N[0]]).sum())

    def find_evaluation_rows(self, index_N: np.ndarray, lo: int, hi: int) -> tuple[Any, Any, Any]:
        """Return (source [N], batch of the source [N], row of the source [N, B]) of batches."""
        source_N = np.searchsorted(self.evaluation_ends_S, index_N, side="right")
        step_N = index_N - np.append(0, self.evaluation_ends_S)[source_N]
        arguments = step_N, self.rows_S[source_N], np.arange(lo, hi), self.data.batch_size
        return source_N, step_N, order.locate_evaluation_rows(*arguments, self.order)

    def build_evaluation_batch(
        self, index: int, lo: int = 0, hi: int | None = None, number: int = 1
    ) -> Batch:
        """Return rows [lo, hi) of evaluation batch `index`, or of `number` batches from there on.

        The split is read in its own order or lane by lane, with masks that the seed does not alter.
        A target that two rows share has a weight in one of them. Rows of weight 0 fill up batches.
        """
        lo, hi = self.slice_share(lo, hi)
        source_N, step_N, row_NB = self.find_evaluation_rows(index + np.arange(number), lo, hi)
        real_B = (row_NB < self.rows_S[source_N][:, None]).ravel()
        row_B = np.where(real_B, (self.table.offsets[source_N][:, None] + row_NB).ravel(), 0)
        batch = self.build_evaluation_rows(row_B)
        if "is_continued" in batch:  # each lane begins with a state of its own
            batch["is_continued"] &= np.repeat(step_N > 0, hi - lo)
        if self.drop_repeats:
            self.drop_repeats(batch, row_B, order.derive_evaluation_keys(row_B))
        for key in (key for key in batch if key.endswith("weights")):
            batch[key][~real_B] = 0
        return batch

    def build_evaluation_rows(self, row_B: np.ndarray) -> Batch:
        """Return rows of the split, with masks that do not depend on the seed."""
        return self.build_plain(row_B, order.derive_evaluation_keys(row_B))

    def slice_share(self, lo: int, hi: int | None) -> tuple[int, int]:
        """Return the range of a host's rows of the batch; raise a ValueError for a wrong one."""
        hi = self.data.batch_size if hi is None else hi
        if not 0 <= lo < hi <= self.data.batch_size:
            raise ValueError(f"rows {lo} to {hi} of a batch of {self.data.batch_size}")
        return lo, hi

    def make_dataset(self, start_step: int = 0, lo: int = 0, hi: int | None = None) -> Any:
        """Return an endless tf.data.Dataset of `build_batch(step, lo, hi)` from start_step on.

        Elements are {key: [B, ...]}. An exception of a row is raised unchanged where
        `data.tf_dataset.read_elements` reads the dataset, or one derived from it.

        Raises:
          ValueError: TensorFlow is not installed, or the rows or the step are invalid.
        """
        from data.tf_dataset import build_groups

        return build_groups(self.plan_batches(start_step, lo, hi)).unbatch()

    def make_evaluation_dataset(self, lo: int = 0, hi: int | None = None) -> Any:
        """Return a tf.data.Dataset of all `build_evaluation_batch(index, lo, hi)`, likewise."""
        from data.tf_dataset import build_groups

        return build_groups(self.plan_evaluation_batches(lo, hi)).unbatch()

    def iterate_batches(
        self, start_step: int = 0, lo: int = 0, hi: int | None = None
    ) -> Iterator[Batch]:
        """Iterate over `build_batch(step, lo, hi)` from start_step on, built ahead."""
        return read_ahead(self.plan_batches(start_step, lo, hi), self.data.feed)

    def iterate_evaluation_batches(self, lo: int = 0, hi: int | None = None) -> Iterator[Batch]:
        """Iterate over all `build_evaluation_batch(index, lo, hi)`, built ahead."""
        return read_ahead(self.plan_evaluation_batches(lo, hi), self.data.feed)

    def plan_batches(self, start_step: int, lo: int, hi: int | None) -> BuildPlan:
        """Return the endless plan of `build_batch(step, lo, hi)` from start_step on."""
        check_step(start_step)
        _ = self.lane_order or self.source_mixture  # raise errors now, not in a thread
        return self.plan_calls(self.build_batch, start_step, ENDLESS, lo, hi)

    def plan_evaluation_batches(self, lo: int, hi: int | None) -> BuildPlan:
        """Return the plan of all `build_evaluation_batch(index, lo, hi)`."""
        return self.plan_calls(self.build_evaluation_batch, 0, self.num_evaluation_batches, lo, hi)

    def plan_calls(
        self,
        function: Callable[[int, int, int, int], Batch],
        start: int,
        stop: int,
        lo: int,
        hi: int | None,
    ) -> BuildPlan:
        """Return a plan that builds and checks the batches [start, stop).

        function: (first, lo, hi, number) -> rows [lo, hi) of `number` batches from `first` on.
        """
        first_row, end_row = self.slice_share(lo, hi)
        rows = end_row - first_row

        def build_checked_batch(first: int, number: int) -> Batch:
            batch = function(first, first_row, end_row, number)
            batch_spec.check_batch(batch, self.objective, number * rows, self.vocabulary)
            return batch

        return BuildPlan(
            build_checked_batch,
            batch_spec.compute_shapes(self.objective, rows),
            start,
            stop,
            rows=rows,
            tokens=rows * self.tokens_per_row,
            threads=self.data.threads,
            prefetch=self.data.prefetch,
        )
