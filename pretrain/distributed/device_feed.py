"""Batches from the host's memory to the mesh: each process builds the rows that its own devices hold, and no others."""

import collections

import jax
import numpy as np

from data.mixed_stream import MixedStream
from pretrain.distributed.sharding import batch_sharding


def local_rows(mesh, batch_size):
    """The rows of the global batch that this process's devices hold, as ascending disjoint intervals [(lo, hi)]."""
    index = batch_sharding(mesh).addressable_devices_indices_map((batch_size,)).values()
    intervals = []
    for lo, hi in sorted({place[0].indices(batch_size)[:2] for place in index if place}):
        if intervals and lo <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(hi, intervals[-1][1]))
        else:
            intervals.append((lo, hi))
    return intervals


def place(parts, intervals, batch_size, mesh):
    """Global arrays from this process's rows: `parts[i]` is a dict of numpy arrays that holds the rows of `intervals[i]`."""
    sharding = batch_sharding(mesh)

    def array(key):
        def rows(index):
            lo, hi, _ = index[0].indices(batch_size)
            held = next(
                i for i, (first, last) in enumerate(intervals) if first <= lo and hi <= last
            )
            first = intervals[held][0]
            return parts[held][key][lo - first : hi - first]

        return jax.make_array_from_callback((batch_size, *parts[0][key].shape[1:]), sharding, rows)

    return {key: array(key) for key in parts[0]}


def place_whole(mesh, array):
    """Rows that all processes have: each puts those on its devices that these hold; the mesh gets as many as divide over it."""
    short = -len(array) % (mesh.shape["data"] * mesh.shape["fsdp"])
    array = np.pad(array, ((0, short), *((0, 0),) * (array.ndim - 1)))
    return jax.make_array_from_callback(
        array.shape, batch_sharding(mesh), lambda index: array[index]
    )


def feed(stream, mesh, start, stop, ahead=2):
    """Yield (step, batch on the mesh) for steps start ... stop - 1, with `ahead` batches already on their way to the devices."""
    batches = place_batches(stream, mesh, start)
    queue = collections.deque()
    for step in range(start, stop):
        queue.append((step, next(batches)))
        if len(queue) > ahead:
            yield queue.popleft()
    yield from queue


def place_batches(stream, mesh, start):
    """Yield the batches of steps `start`, start + 1, ... on the mesh; of a mixture {part: its batch}."""
    if isinstance(stream, MixedStream):
        parts = {name: place_batches(part, mesh, start) for name, part in stream.streams.items()}
        while True:
            yield {name: next(part) for name, part in parts.items()}
    size = stream.data.batch_size
    intervals = local_rows(mesh, size)
    sources = [stream.batches(start, lo, hi) for lo, hi in intervals]
    while True:
        yield place([next(source) for source in sources], intervals, size, mesh)


def feed_evaluation(stream, mesh):
    """Yield every row of the split once, in batches on the mesh."""
    size = stream.data.batch_size
    intervals = local_rows(mesh, size)
    for parts in zip(*(stream.evaluation_batches(lo, hi) for lo, hi in intervals), strict=True):
        yield place(parts, intervals, size, mesh)
