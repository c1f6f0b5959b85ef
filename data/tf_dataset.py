"""Batches through tf.data: built ahead of time, and read.

NumPy is the definition of a batch; tf.data runs it in threads. To hand an element over costs as much as to make some
20,000 masked tokens, so several batches make one element, a group, and are taken apart by whoever reads them.

B rows of a batch   N batches of a group
"""

import atexit
import itertools
import re

import numpy as np

ENDLESS = np.iinfo(np.int64).max
# The exceptions of rows on their way to the reader, by number: TensorFlow passes on no more than their text.
ERRORS: dict[int, Exception] = {}
NUMBERS, MOST_ERRORS = itertools.count(1), 100
ERROR = re.compile(r"batch error number (\d+)")


def import_tensorflow():
    """Return TensorFlow, kept off the accelerators: input workers must not touch them."""
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        if tf.config.get_visible_devices(kind):
            tf.config.set_visible_devices([], kind)
    return tf


# ---- building ----------------------------------------------------------------


def build_groups(build, spec, start, stop, *, group, together, threads, prefetch):
    """Return a tf.data.Dataset of groups {key: [N, B, ...]} of the batches [start, stop), `group` of them in each.

    Args:
      build: (first, number) -> {key: [number * B, ...]}, the batches from `first` on, one behind the other.
      spec: {key: (dtype, shape)} of one batch.
      together: how many batches one call of `build` makes.
      prefetch: how many batches wait ready.

    Where `build` raises, the batches before the one that it raises for are read first.
    """
    tf = import_tensorflow()
    types = [dtype for dtype, _ in spec.values()]

    def build_group(first):
        parts, error = build_many(build, int(first), min(group, stop - int(first)), together)
        return [
            np.int64(0 if error is None else keep_error(error)),
            *(join_batches([part[key] for part in parts], *spec[key]) for key in spec),
        ]

    def name_tensors(tensors):
        return {
            key: tf.ensure_shape(tensor, (None, *shape))
            for tensor, (key, (_, shape)) in zip(tensors, spec.items(), strict=True)
        }

    def number_and_group(first):
        number, *tensors = tf.numpy_function(
            build_group, [first], [np.int64, *types], stateful=False
        )
        return tf.ensure_shape(number, ()), name_tensors(tensors)

    def raise_behind(number, tensors):
        """Return a dataset of this group and, where `number` is that of an error, of an element that raises it."""
        failure = tf.data.Dataset.range(number, number + tf.minimum(number, 1))
        failure = failure.map(
            lambda number: name_tensors(tf.numpy_function(raise_error, [number], types))
        )
        return tf.data.Dataset.from_tensors(tensors).concatenate(failure)

    dataset = tf.data.Dataset.range(start, stop, group)
    dataset = dataset.map(number_and_group, num_parallel_calls=threads, deterministic=True)
    dataset = dataset.flat_map(
        raise_behind  # pyright: ignore[reportArgumentType] - tf.data unpacks the pair
    ).prefetch(-(-prefetch // group))
    options = make_options(tf)
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return dataset.with_options(options)


def build_many(build, first, number, together):
    """Return ([batches that one call of `build` made], the error that ended it or None).

    A call that raises is made again batch by batch, so that the batches before the error are not lost with it.
    """
    parts = []
    for at in range(first, first + number, together):
        count = min(together, first + number - at)
        try:
            parts.append(build(at, count))
        except Exception as error:
            if count == 1:
                return parts, error
            singles, error = build_many(build, at, count, 1)
            parts += singles
            if error is not None:
                return parts, error
    return parts, None


def join_batches(arrays, dtype, shape):
    """Return the arrays, [n * B, ...] each, as one [N, B, ...]."""
    if not arrays:
        return np.zeros((0, *shape), dtype)
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return whole.reshape(-1, *shape)


def make_options(tf):
    """Return the options of all our datasets.

    With autotuning, closing an iterator took up to a minute in 3 of 30 runs; without it in none of 30.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return options


# ---- reading -----------------------------------------------------------------


def read_elements(dataset):
    """Iterate over the elements of a dataset, in NumPy's arrays; an exception of a row is raised as it was.

    The threads that build batches run Python. If they still did so while the interpreter ends, neither would end (seen
    in one of two exits); so the iterator, which waits for them, goes before that, at exit at the latest.
    """
    tf = import_tensorflow()
    alive = [dataset.with_options(make_options(tf)).as_numpy_iterator()]
    atexit.register(alive.clear)
    try:
        while True:
            failure = None
            try:
                element = next(alive[0], None)
            except tf.errors.OpError as error:
                failure = take_error(error)
            if failure is not None:
                raise failure
            if element is None:
                return
            yield element
    finally:
        alive.clear()
        atexit.unregister(alive.clear)


def read_batches(groups):
    """Iterate over the batches of a dataset of groups, {key: [B, ...]} each."""
    for group in read_elements(groups):
        for batch in zip(*group.values(), strict=True):
            yield dict(zip(group, batch, strict=True))


def keep_error(error):
    """Return the number under which `raise_error` finds an exception."""
    number = next(NUMBERS)
    ERRORS[number] = error
    while len(ERRORS) > MOST_ERRORS:  # of batches that nobody read
        ERRORS.pop(min(ERRORS), None)
    return number


def raise_error(number):
    """Raise what `take_error` knows to be the exception of that number; within TensorFlow."""
    raise RuntimeError(f"batch error number {number}: {ERRORS[int(number)]!r}")


def take_error(error):
    """Return the exception that a TensorFlow error stands for; itself where it is one of TensorFlow's own."""
    found = ERROR.search(error.message or "")
    return ERRORS.pop(int(found[1]), error) if found else error
