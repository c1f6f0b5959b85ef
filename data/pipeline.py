"""batch(step): the same rows in any process, on any number of hosts, after any restart, from seed and step alone.

Example g = step * batch_size + i of a run takes row permute(g mod n) of epoch g div n, where n is the number of rows
of its part of the mixture; its masks, spans or pairs are hashes of (seed, part, epoch, row). Rows on lanes go on instead:
data/rows/order.py. Nothing but the step is state, so a run resumes at any step at once, and each host builds its own
rows only. `Stream.batch` is the definition, in NumPy; TensorFlow only runs it ahead of time.

A run whose batch size changes at step s goes on at the next row that it has not read: g = place(s) + (step - s) *
batch_size + i from there on.

B rows of the batch   S parts of the mixture
"""

import functools

import numpy as np

from data import batch_spec
from data.rows import hashing
from data.rows.mixture import Mixture
from data.rows.order import Lanes
from data.rows.permutation import permute
from data.tf_dataset import ENDLESS, build_groups, read_batches

ORDER, MIXTURE, DRAWS, EVALUATION = range(4)  # what a key is for

BLOCK = 4096  # places of the order that are looked up together
# Batches are made together while they hold no more tokens than MADE, and handed over together up to HANDED: to wake a
# thread of TensorFlow and the reader costs as much as to make 80,000 masked tokens. MOST is of batches, of either.
MADE, HANDED, MOST = 1 << 17, 1 << 20, 16


class Stream:
    """The batches of one split of a source.

    rows            rows in an epoch, over all parts of the mixture
    tokens_per_row  ids of a row that the encoder sees, padding included
    """

    def __init__(self, source, data, *, split="train", seed=0):
        """source: a data.source.Source; data: a data.config.Data; seed: of order, mixture and masks. Raises ValueError."""
        check_data(data, seed)
        self.data, self.objective, self.seed = data, data.objective, seed
        self.path, self.name = source.path, f"the {split} split of {source.path}"
        found = source.rows(split, data.objective)
        self.table, self.build, self.parts = found.table, found.build, found.parts
        self.split, self.vocabulary = found.split, found.vocabulary
        self.rows, self.tokens_per_row = self.table.count, self.objective.dims()["L"]
        self.rows_S = np.diff(self.table.offsets)
        self.order = found.order
        self.begin_from(0, 0)

    def begin_from(self, step, row):
        """Let the batch of `step` begin with example `row` of the run, whatever the batches before it were.

        Raises ValueError where the rows are on lanes, whose number is the batch size, and `row` is not that of an unchanged one.
        """
        self.shift = row - step * self.data.batch_size
        if self.shift and self.lanes:
            raise ValueError(
                f"data.batch_size={self.data.batch_size}: rows on lanes go on with the batch size that the run began with"
            )
        self.block = functools.lru_cache(maxsize=2 * self.data.threads)(self.draws_of_block)

    def place(self, step):
        """The number of examples that the steps before this one have read: the batch of `step` begins with this one."""
        return step * self.data.batch_size + self.shift

    @functools.cached_property
    def lanes(self):
        """The order of rows on lanes in training, None for shuffled ones; refuses parts that cannot fill theirs."""
        if self.order != "lanes":
            return None
        rates = self.data.rates or [part.rate for part in self.parts]
        try:
            return Lanes(
                rates, self.table.whole_S, self.data.batch_size, [part.name for part in self.parts]
            )
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    @functools.cached_property
    def mixture(self):
        """The order of the parts in training; refuses parts that cannot give a row."""
        parts, rates = self.parts, self.data.rates or [part.rate for part in self.parts]
        names = [part.name for part in parts]
        if len(rates) != len(parts):
            known = ", ".join(names)
            raise ValueError(
                f"data.rates has {len(rates)} values, but the store has {len(parts)} sources: {known}"
            )
        if min(rates) < 0 or not 0 < sum(rates) < np.inf:
            raise ValueError(
                f"data.rates={tuple(rates)}: rates are 0 or more, and one of them above 0"
            )
        short = getattr(self.table, "short", ())
        for name, rate, rows in zip(names, rates, self.rows_S):
            if rate > 0 and (rows == 0 or name in short):
                raise ValueError(
                    f"{self.name}: the source {name!r} holds less text than one row of {self.objective.name}, "
                    f"but its rate is {rate:g}: leave it out, give it the rate 0, or shorten the rows"
                )
        return Mixture(rates, hashing.key(self.seed, MIXTURE)) if len(parts) > 1 else None

    def examples(self, place_B):
        """(source, epoch of the source, row of the table) of places of the order: int64 [B] each."""
        place_B = np.asarray(place_B, np.int64)
        if self.lanes:
            part_B, epoch_B, row_B = self.lanes(*np.divmod(place_B, self.data.batch_size))
            return part_B, epoch_B, self.table.offsets[part_B] + row_B
        source_B, number_B = (
            self.mixture(place_B) if self.mixture else (np.zeros_like(place_B), place_B)
        )
        epoch_B, within_B = np.divmod(number_B, self.rows_S[source_B])
        row_B = permute(
            within_B, self.rows_S[source_B], hashing.key(self.seed, ORDER, source_B, epoch_B)
        )
        return source_B, epoch_B, self.table.offsets[source_B] + row_B

    def batch(self, step, lo=0, hi=None, number=1):
        """Rows [lo, hi) of the global batch of `step`: {key: array}, as the batch spec says.

        With `number`, those of so many batches from that step on, one behind the other: a row knows nothing of the others.
        """
        lo, hi = self.share(lo, hi)
        check_step(step)
        steps = -(-BLOCK // (hi - lo))
        drawn = []
        for each in range(step, step + number):
            row_NB, key_NB = self.block(each // steps, steps, lo, hi)
            drawn.append((row_NB[each % steps], key_NB[each % steps]))
        return self.build(*(np.concatenate(parts) for parts in zip(*drawn)))

    def draws_of_block(self, block, steps, lo, hi):
        """`draws` of rows [lo, hi) of N = `steps` batches, [N, B] each. They are many small operations, hardly dearer for many rows."""
        place_N = self.place(block * steps + np.arange(steps))
        place_NB = np.maximum(place_N[:, None] + np.arange(lo, hi), 0)  # before it began from a row
        row_NB, key_NB = (each.reshape(place_NB.shape) for each in self.draws(place_NB.ravel()))
        row_NB.flags.writeable = key_NB.flags.writeable = False  # they are kept
        return row_NB, key_NB

    def draws(self, place_B):
        """(row of the table, key of its masks, spans or pair) of places of the order."""
        source_B, epoch_B, row_B = self.examples(place_B)
        dupe_factor = getattr(self.objective, "dupe_factor", 0)
        version_B = epoch_B % dupe_factor if dupe_factor else epoch_B
        return row_B, hashing.key(self.seed, DRAWS, source_B, version_B, row_B)

    @functools.cached_property
    def evaluation_ends_S(self):
        """int64 [S]: the number of evaluation batches up to the last one of each source."""
        return np.cumsum(-(-self.rows_S // self.data.batch_size))

    @property
    def evaluation_steps(self):
        """Batches that hold each row of the split once, and those of one source each."""
        return int(self.evaluation_ends_S[-1]) if len(self.evaluation_ends_S) else 0

    def evaluation_part(self, index):
        """Return (the name of the source of evaluation batch `index`, how many of the batch's rows are its)."""
        source = int(np.searchsorted(self.evaluation_ends_S, index, side="right"))
        last = int(self.evaluation_ends_S[source]) - 1
        full, rows = self.data.batch_size, int(self.rows_S[source])
        own = full if index < last else rows - (rows - 1) // full * full
        return strip_common_folders([part.name for part in self.parts])[source], own

    def evaluation_batch(self, index, lo=0, hi=None, number=1):
        """Rows [lo, hi) of batch `index` of the split in its own order, or of `number` from there on, with masks that no seed changes.

        The last batch of a source is filled with rows whose weights are 0.
        """
        lo, hi = self.share(lo, hi)
        index_N = np.arange(index, index + number)
        source_N = np.searchsorted(self.evaluation_ends_S, index_N, side="right")
        before_N = np.append(0, self.evaluation_ends_S)[source_N]
        within_N = self.table.offsets[source_N] + (index_N - before_N) * self.data.batch_size
        row_NB = within_N[:, None] + np.arange(lo, hi)
        real_B = (row_NB < self.table.offsets[source_N + 1][:, None]).ravel()
        batch = self.evaluation_rows(np.where(real_B, row_NB.ravel(), 0))
        for key in (key for key in batch if key.endswith("weights")):
            batch[key][~real_B] = 0
        return batch

    def evaluation_rows(self, row_B):
        """These rows of the split, with masks that no seed changes."""
        return self.build(row_B, hashing.key(0, EVALUATION, row_B))

    def share(self, lo, hi):
        """Checks a host's part of the batch."""
        hi = self.data.batch_size if hi is None else hi
        if not 0 <= lo < hi <= self.data.batch_size:
            raise ValueError(f"rows {lo} to {hi} of a batch of {self.data.batch_size}")
        return lo, hi

    def dataset(self, start_step=0, lo=0, hi=None, grouped=False):
        """Return a tf.data.Dataset of `batch(step, lo, hi)` for step = start_step, start_step + 1, ... without end.

        Elements are {key: [B, ...]}, or groups of batches {key: [N, B, ...]}, which cost less to hand over. An exception
        of a row is raised as it was where `data.tf_dataset.read_elements` reads the dataset, or what was made of it.
        """
        check_step(start_step)
        _ = self.lanes or self.mixture  # what can be refused is refused now, not out of a thread
        return self.build_ahead(self.batch, start_step, ENDLESS, lo, hi, grouped)

    def evaluation_dataset(self, lo=0, hi=None, grouped=False):
        """Return a tf.data.Dataset of `evaluation_batch(index, lo, hi)`, as `dataset` does: each row of the split once."""
        return self.build_ahead(self.evaluation_batch, 0, self.evaluation_steps, lo, hi, grouped)

    def batches(self, start_step=0, lo=0, hi=None):
        """Iterate over `batch(step, lo, hi)` for step = start_step, ..., as `dataset` gives them."""
        return read_batches(self.dataset(start_step, lo, hi, grouped=True))

    def evaluation_batches(self, lo=0, hi=None):
        """Iterate over `evaluation_batch(index, lo, hi)`, as `evaluation_dataset` gives them."""
        return read_batches(self.evaluation_dataset(lo, hi, grouped=True))

    def build_ahead(self, function, start, stop, lo, hi, grouped):
        """Return a tf.data.Dataset of function(index, lo, hi) for index in [start, stop), checked and built ahead."""
        lo, hi = self.share(lo, hi)

        def build(first, number):
            batch = function(first, lo, hi, number)
            batch_spec.check(batch, self.objective, number * (hi - lo), self.vocabulary)
            return batch

        tokens = (hi - lo) * self.tokens_per_row
        together, group = (min(max(most // tokens, 1), MOST) for most in (MADE, HANDED))
        dataset = build_groups(
            build,
            batch_spec.shapes(self.objective, hi - lo),
            start,
            stop,
            group=group,
            together=together,
            threads=self.data.threads,
            prefetch=self.data.prefetch,
        )
        return dataset if grouped else dataset.unbatch()


def strip_common_folders(names):
    """Return paths without the folders that all of them begin with."""
    split = [name.split("/") for name in names]
    depth, most = 0, min(map(len, split)) - 1 if len(split) > 1 else 0
    while depth < most and len({parts[depth] for parts in split}) == 1:
        depth += 1
    return ["/".join(parts[depth:]) for parts in split]


def check_step(step):
    """Raise a ValueError for a step before the first."""
    if step < 0:
        raise ValueError(f"step {step}: steps are counted from 0")


def check_data(data, seed):
    """Raise a ValueError unless the settings that no objective owns make sense."""
    for name in ("batch_size", "threads", "prefetch"):
        if getattr(data, name) < 1:
            raise ValueError(f"data.{name}={getattr(data, name)}: 1 or more")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed}: from 0 to 2^63 - 1")
