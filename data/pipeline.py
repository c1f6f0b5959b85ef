"""batch(step): the same rows in any process, on any number of hosts, after any restart, from seed and step alone.

Example g = step * batch_size + i of a run takes row permute(g mod n) of epoch g div n, where n is the number of rows
of its source; its masks, spans or pairs are hashes of (seed, source, epoch, row). Nothing but the step is state, so a
run resumes at any step at once, and each host builds its own rows only. `Stream.batch` is the definition, in NumPy;
TensorFlow only runs it ahead of time.

B rows of the batch   S sources
"""

import atexit
import functools

import numpy as np

from data import batch_spec as batches
from data.rows import hashing
from data.rows.mixture import Mixture
from data.rows.permutation import permute

ORDER, MIXTURE, DRAWS, EVALUATION = range(4)  # what a key is for

ENDLESS = np.iinfo(np.int64).max
BLOCK = 4096  # places of the order that are looked up together
# Batches are made together while they hold no more tokens than MADE, and handed over together up to HANDED: to wake a thread of TensorFlow and
# the reader costs as much as to make 80,000 masked tokens. MOST is of batches, of either.
MADE, HANDED, MOST = 1 << 17, 1 << 20, 16


class Stream:
    """The batches of one split of a store.

    rows            rows in an epoch, over all sources
    tokens_per_row  ids of a row that the encoder sees, padding included
    """

    def __init__(self, store, data, *, split="train", seed=0):
        """store: a data.store.reader.Store; data: a data.config.Data; seed: of order, mixture and masks. Raises ValueError."""
        check_data(data, seed)
        data.objective.check(store.vocabulary)
        self.data, self.objective, self.seed = data, data.objective, seed
        self.name = f"the {split} split of {store.path}"
        self.split, self.vocabulary = store.split(split), store.vocabulary
        if len(self.split.tokens) == 0:
            raise ValueError(
                f"{self.name} is empty: prepare a larger corpus, or hold out another share of it"
            )
        try:
            self.table, self.build = self.objective.examples(self.split, self.vocabulary)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        self.rows, self.tokens_per_row = self.table.count, self.objective.dims()["L"]
        self.rows_S = np.diff(self.table.offsets)
        self.block = functools.lru_cache(maxsize=2 * data.threads)(self.draws_of_block)

    @functools.cached_property
    def mixture(self):
        """The order of the sources in training; refuses sources that cannot give a row."""
        sources, rates = (
            self.split.sources,
            self.data.rates or [source.rate for source in self.split.sources],
        )
        names = [source.name for source in sources]
        if len(rates) != len(sources):
            known = ", ".join(names)
            raise ValueError(
                f"data.rates has {len(rates)} values, but the store has {len(sources)} sources: {known}"
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
        return Mixture(rates, hashing.key(self.seed, MIXTURE)) if len(sources) > 1 else None

    def examples(self, place_B):
        """(source, epoch of the source, row of the table) of places of the order: int64 [B] each."""
        place_B = np.asarray(place_B, np.int64)
        source_B, number_B = (
            self.mixture(place_B) if self.mixture else (np.zeros_like(place_B), place_B)
        )
        epoch_B, within_B = np.divmod(number_B, self.rows_S[source_B])
        row_B = permute(
            within_B, self.rows_S[source_B], hashing.key(self.seed, ORDER, source_B, epoch_B)
        )
        return source_B, epoch_B, self.table.offsets[source_B] + row_B

    def batch(self, step, lo=0, hi=None, number=1):
        """Rows [lo, hi) of the global batch of `step`: {key: array}, as data/batch_spec.py says.

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
        place_NB = (block * steps + np.arange(steps))[:, None] * self.data.batch_size + np.arange(
            lo, hi
        )
        row_NB, key_NB = (each.reshape(place_NB.shape) for each in self.draws(place_NB.ravel()))
        row_NB.flags.writeable = key_NB.flags.writeable = False  # they are kept
        return row_NB, key_NB

    def draws(self, place_B):
        """(row of the table, key of its masks, spans or pair) of places of the order."""
        source_B, epoch_B, row_B = self.examples(place_B)
        duplicates = getattr(self.objective, "duplicates", 0)
        version_B = epoch_B % duplicates if duplicates else epoch_B
        return row_B, hashing.key(self.seed, DRAWS, source_B, version_B, row_B)

    @property
    def evaluation_steps(self):
        """Batches that hold each row of the split once."""
        return -(-self.rows // self.data.batch_size)

    def evaluation_batch(self, index, lo=0, hi=None, number=1):
        """Rows [lo, hi) of batch `index` of the split in its own order, or of `number` from there on, with masks that no seed changes.

        The last batch is filled with rows whose weights are 0.
        """
        lo, hi = self.share(lo, hi)
        row_B = (
            np.arange(index, index + number)[:, None] * self.data.batch_size + np.arange(lo, hi)
        ).ravel()
        real_B = row_B < self.rows
        batch = self.evaluation_rows(np.where(real_B, row_B, 0))
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

    def dataset(self, start_step=0, lo=0, hi=None):
        """tf.data.Dataset of `batch(step, lo, hi)` for step = start_step, start_step + 1, ... without end."""
        lo, hi = self.trains(start_step, lo, hi)
        tf, treaty = import_tensorflow(), batches.shapes(self.objective, hi - lo)

        def arrays(step):
            batch = self.checked(self.batch, int(step), lo, hi)
            return [batch[key] for key in treaty]

        def element(step):
            tensors = tf.numpy_function(
                arrays, [step], [dtype for dtype, _ in treaty.values()], stateful=False
            )
            return {
                key: tf.ensure_shape(tensor, shape)
                for tensor, (key, (_, shape)) in zip(tensors, treaty.items())
            }

        return self.ahead(element, start_step, ENDLESS)

    def batches(self, start_step=0, lo=0, hi=None):
        """Iterator over `batch(step, lo, hi)` for step = start_step, ...; an error in a batch is raised as it was."""
        return self.drain(self.batch, start_step, ENDLESS, *self.trains(start_step, lo, hi))

    def trains(self, start_step, lo, hi):
        """The rows [lo, hi) of training's batches; what can be refused is refused now, not out of a thread."""
        check_step(start_step)
        _ = self.mixture
        return self.share(lo, hi)

    def evaluation_batches(self, lo=0, hi=None):
        """Iterator over `evaluation_batch(index, lo, hi)`, as {key: NumPy array}: each row of the split once."""
        return self.drain(self.evaluation_batch, 0, self.evaluation_steps, *self.share(lo, hi))

    def checked(self, function, index, lo, hi, number=1):
        """function(index, lo, hi, number), if it is what the treaty says."""
        batch = function(index, lo, hi, number)
        batches.check(batch, self.objective, number * (hi - lo), self.vocabulary)
        return batch

    def ahead(self, element, start, stop, together=1):
        """tf.data.Dataset of element(index) for every `together`-th index in [start, stop), computed ahead by threads."""
        tf = import_tensorflow()
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.data.threads
        options.threading.max_intra_op_parallelism = 1
        dataset = tf.data.Dataset.range(start, stop, together)
        dataset = dataset.map(element, num_parallel_calls=self.data.threads, deterministic=True)
        return dataset.prefetch(-(-self.data.prefetch // together)).with_options(options)

    def drain(self, function, start, stop, lo, hi):
        """Iterate over function(index, lo, hi) for index in [start, stop), built ahead.

        What runs through TensorFlow are the indices; the batches stay NumPy's and are handed over beside it. As tensors, five
        arrays took 0.15 ms more a batch, and an error is told as text.
        """
        tf, made = import_tensorflow(), {}
        together, handed = (
            min(max(most // ((hi - lo) * self.tokens_per_row), 1), MOST) for most in (MADE, HANDED)
        )

        def several(first, number):
            """The batches from `first` on, made together; one by one where that fails, so that an error stands where it belongs."""
            try:
                batch = self.checked(function, first, lo, hi, number)
            except Exception as error:
                return (
                    [each for i in range(number) for each in several(first + i, 1)]
                    if number > 1
                    else [error]
                )
            return [
                {key: array[i * (hi - lo) : (i + 1) * (hi - lo)] for key, array in batch.items()}
                for i in range(number)
            ]

        def build(index):
            last = min(int(index) + handed, stop)
            made[int(index)] = [
                batch
                for first in range(int(index), last, together)
                for batch in several(first, min(together, last - first))
            ]
            return index

        dataset = self.ahead(
            lambda index: tf.numpy_function(build, [index], np.int64, stateful=False),
            start,
            stop,
            handed,
        )
        return handed_over(dataset, made)


def handed_over(dataset, made):
    """Iterate over the batches in `made`, in the order of a dataset of the first index of each list; an exception that stands there is raised.

    The threads that build batches run Python. If they still did so while the interpreter ends, neither would end (seen
    in one of two exits); so the iterator, which waits for them, goes before that, at exit at the latest.
    """
    alive = [dataset.as_numpy_iterator()]

    def close():
        alive.clear()

    atexit.register(close)
    try:
        while (index := next(alive[0], None)) is not None:
            for batch in made.pop(int(index)):
                if isinstance(batch, Exception):
                    raise batch
                yield batch
    finally:
        close()
        atexit.unregister(close)


def import_tensorflow():
    """TensorFlow, kept off the accelerators: input workers must not touch them."""
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        if tf.config.get_visible_devices(kind):
            tf.config.set_visible_devices([], kind)
    return tf


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
