"""Batches through tf.data (extra `tfdata`): built ahead of time, and read.

NumPy defines a batch; tf.data runs it in threads. Handing over an element costs as much as building
some 20,000 masked tokens, so several batches form one element, a group, which the reader splits.

B rows of a batch   N batches of a group
"""

import atexit
import itertools
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from data.read_ahead import BUILT_TOKENS, BuildPlan
from data.rows.tables import Batch
from data.tensorflow_import import import_tensorflow

# A dataset's element holds batches of up to GROUP_TOKENS tokens: waking a thread of TensorFlow and
# the reader costs as much as building 80,000 masked tokens.
GROUP_TOKENS = 1 << 20
# Exceptions on their way to the reader, by number: TensorFlow passes on only their text.
ERRORS: dict[int, Exception] = {}
ERROR_NUMBERS, MAX_ERRORS = itertools.count(1), 100
ERROR_PATTERN = re.compile(r"batch error number (\d+)")


# ---- building ----------------------------------------------------------------


def build_groups(plan: BuildPlan) -> Any:
    """Return a tf.data.Dataset of groups {key: [N, B, ...]} of the batches of a plan.

    Where `plan.build` raises an exception, the batches before the failing one are read first.
    """
    spec, stop = plan.spec, plan.stop
    group_size, call_size = plan.count_batches(GROUP_TOKENS), plan.count_batches(BUILT_TOKENS)
    tf = import_tensorflow()
    types = [dtype for dtype, _ in spec.values()]

    def build_group(first: np.ndarray) -> list[Any]:
        parts, error = build_many(
            plan.build, int(first), min(group_size, stop - int(first)), call_size
        )
        return [
            np.int64(0 if error is None else store_error(error)),
            *(join_batches([part[key] for part in parts], *spec[key]) for key in spec),
        ]

    def build_numbered_group(first: Any) -> tuple[Any, dict[str, Any]]:
        number, *tensors = tf.numpy_function(
            build_group, [first], [np.int64, *types], stateful=False
        )
        return tf.ensure_shape(number, ()), name_tensors(tensors, spec)

    def append_failure(number: Any, tensors: dict[str, Any]) -> Any:
        """Return a dataset of this group, followed by an element that raises error `number`.

        0 stands for no error.
        """
        failure = tf.data.Dataset.range(number, number + tf.minimum(number, 1))
        failure = failure.map(
            lambda number: name_tensors(tf.numpy_function(raise_error, [number], types), spec)
        )
        return tf.data.Dataset.from_tensors(tensors).concatenate(failure)

    dataset = tf.data.Dataset.range(plan.start, stop, group_size)
    dataset = dataset.map(build_numbered_group, num_parallel_calls=plan.threads, deterministic=True)
    dataset = dataset.flat_map(
        append_failure  # pyright: ignore[reportArgumentType] - tf.data unpacks the pair
    ).prefetch(-(-plan.prefetch // group_size))
    options = make_options(tf)
    options.threading.private_threadpool_size = plan.threads
    options.threading.max_intra_op_parallelism = 1
    return dataset.with_options(options)


def build_many(
    build: Callable[[int, int], Batch], first: int, number: int, call_size: int
) -> tuple[list[Batch], Exception | None]:
    """Return (the results of the calls of `build`, the exception that ended them or None).

    A call that raises an exception is repeated batch by batch, so that the batches before the
    failing one are not lost.
    """
    parts: list[Batch] = []
    for start in range(first, first + number, call_size):
        count = min(call_size, first + number - start)
        try:
            parts.append(build(start, count))
        except Exception as error:
            if count == 1:
                return parts, error
            singles, single_error = build_many(build, start, count, 1)
            parts += singles
            if single_error is not None:
                return parts, single_error
    return parts, None


def join_batches(
    arrays: Sequence[np.ndarray], dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the arrays, [n * B, ...] each, as one [N, B, ...]."""
    if not arrays:
        return np.zeros((0, *shape), dtype)
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return whole.reshape(-1, *shape)


def name_tensors(
    tensors: Sequence[Any], spec: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
) -> dict[str, Any]:
    """Return the tensors of a group of batches under their keys, with static shapes."""
    tf = import_tensorflow()
    return {
        key: tf.ensure_shape(tensor, (None, *shape))
        for tensor, (key, (_, shape)) in zip(tensors, spec.items(), strict=True)
    }


def make_options(tf: Any) -> Any:
    """Return the options of all datasets.

    With autotuning, closing an iterator took up to a minute in 3 of 30 runs; without it, in 0 of
    30.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return options


# ---- reading -----------------------------------------------------------------


def read_elements(dataset: Any) -> Iterator[Any]:
    """Iterate over the elements of a dataset as NumPy arrays; raise a row's exception unchanged.

    The threads that build batches run Python. If they still did so while the interpreter exits,
    both would hang (seen in one of two exits). So the iterator, which waits for the threads, is
    deleted earlier, at exit at the latest.
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
            except BaseException as interruption:  # such as Ctrl-C; its frames hold the iterator
                traceback.clear_frames(interruption.__traceback__)
                raise
            if failure is not None:
                raise failure
            if element is None:
                return
            yield element
    finally:
        alive.clear()
        atexit.unregister(alive.clear)


def read_ahead(plan: BuildPlan) -> Iterator[Batch]:
    """Iterate over the batches of a plan, {key: [B, ...]} each."""
    return split_groups(build_groups(plan))


def split_groups(groups: Any) -> Iterator[Batch]:
    """Iterate over the batches of a dataset of groups."""
    for group in read_elements(groups):
        for batch in zip(*group.values(), strict=True):
            yield dict(zip(group, batch, strict=True))


def store_error(error: Exception) -> int:
    """Store an exception; return the number under which `raise_error` finds it."""
    number = next(ERROR_NUMBERS)
    ERRORS[number] = error
    while len(ERRORS) > MAX_ERRORS:  # errors of batches that were never read
        ERRORS.pop(min(ERRORS), None)
    return number


def raise_error(number: Any) -> NoReturn:
    """Raise an error inside TensorFlow that `take_error` turns into the exception `number`."""
    raise RuntimeError(f"batch error number {number}: {ERRORS[int(number)]!r}")


def take_error(error: Any) -> Exception:
    """Return the exception that a TensorFlow error stands for, or TensorFlow's own error."""
    found = ERROR_PATTERN.search(error.message or "")
    return ERRORS.pop(int(found[1]), error) if found else error
