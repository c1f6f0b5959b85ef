"""Move batches from host memory to the mesh. Each process builds only the rows of its devices."""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from data.pipeline import Stream
from pretrain.mesh.sharding import make_batch_sharding

Intervals = Sequence[tuple[int, int]]
HostBatch = Mapping[str, np.ndarray]
Batch = dict[str, Any]  # {key: global array}, or {part: {key: global array}} for a mixture

if TYPE_CHECKING:
    from data.composed import ComposedBatches
    from data.mixed_stream import MixedStream


def find_local_rows(mesh: Mesh, batch_size: int) -> list[tuple[int, int]]:
    """Return the rows of a global batch that this process's devices hold.

    The result is a list of ascending disjoint intervals (lo, hi).
    """
    indices = make_batch_sharding(mesh).addressable_devices_indices_map((batch_size,)).values()
    intervals = []
    for lo, hi in sorted({index[0].indices(batch_size)[:2] for index in indices if index}):
        if intervals and lo <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(hi, intervals[-1][1]))
        else:
            intervals.append((lo, hi))
    return intervals


def make_global_arrays(
    parts: Sequence[HostBatch], intervals: Intervals, batch_size: int, mesh: Mesh
) -> Batch:
    """Return global arrays from this process's rows; `parts[i]` has the rows of `intervals[i]`."""
    sharding = make_batch_sharding(mesh)

    def build_array(key: str) -> jax.Array:
        def select_rows(index: Any) -> np.ndarray:
            lo, hi, _ = index[0].indices(batch_size)
            i = next(i for i, (first, last) in enumerate(intervals) if first <= lo and hi <= last)
            first = intervals[i][0]
            return parts[i][key][lo - first : hi - first]

        return jax.make_array_from_callback(
            (batch_size, *parts[0][key].shape[1:]), sharding, select_rows
        )

    return {key: build_array(key) for key in parts[0]}


def place_shared_rows(mesh: Mesh, array: np.ndarray) -> jax.Array:
    """Return a global array from rows that all processes have.

    Rows of zeros are appended until the number of rows divides over the mesh.
    """
    num_padding = -len(array) % (mesh.shape["data"] * mesh.shape["fsdp"])
    array = np.pad(array, ((0, num_padding), *((0, 0),) * (array.ndim - 1)))
    return jax.make_array_from_callback(
        array.shape, make_batch_sharding(mesh), lambda index: array[index]
    )


def prefetch_to_devices(
    stream: Stream | MixedStream | ComposedBatches,
    mesh: Mesh,
    start: int,
    stop: int,
    buffer_size: int = 2,
    on_failure: Callable[[Exception], None] = lambda failure: None,
) -> Generator[tuple[int, Batch], None, None]:
    """Yield (step, batch on the mesh) for start <= step < stop.

    Args:
      buffer_size: number of batches that are transferred to the devices in advance.
      on_failure: called with an error of the rows, such as of a damaged store, as soon as it is
        met. The batches before it follow, and then it is raised.
    """
    batches = place_batches(stream, mesh, start)
    queue = collections.deque()
    failure = None
    for step in range(start, stop):
        try:
            queue.append((step, next(batches)))
        except jax.errors.JaxRuntimeError:  # of a device
            raise
        except Exception as error:
            failure = error
            on_failure(failure)
            break
        if len(queue) > buffer_size:
            yield queue.popleft()
    yield from queue
    if failure:
        raise failure


def place_batches(
    stream: Stream | MixedStream | ComposedBatches, mesh: Mesh, start: int
) -> Iterator[Batch]:
    """Yield the batches of steps start, start + 1, ... on the mesh; {part: batch} for a mixture."""
    if "" not in stream.streams:
        parts = {name: place_batches(part, mesh, start) for name, part in stream.streams.items()}
        while True:
            yield {name: next(part) for name, part in parts.items()}
    stream_of_all = stream.streams[""]
    batch_size = stream_of_all.data.batch_size
    intervals = find_local_rows(mesh, batch_size)
    feeds = [stream_of_all.iterate_batches(start, lo, hi) for lo, hi in intervals]
    while True:
        yield make_global_arrays([next(feed) for feed in feeds], intervals, batch_size, mesh)


def place_evaluation_batches(stream: Stream, mesh: Mesh) -> Iterator[Batch]:
    """Yield every row of the split once, in batches on the mesh."""
    batch_size = stream.data.batch_size
    intervals = find_local_rows(mesh, batch_size)
    for parts in zip(
        *(stream.iterate_evaluation_batches(lo, hi) for lo, hi in intervals), strict=True
    ):
        yield make_global_arrays(parts, intervals, batch_size, mesh)
