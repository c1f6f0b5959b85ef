"""Arrays in remote files that are read by ranges on demand, with verified checksums.

Rows are shuffled, so a batch needs many distant ranges. Ranges that are not in memory are requested
concurrently, and the most recent ones are cached. The checksums are the crc32c of each 4 KiB, which
every file of a store has (data/store/writer.py).
"""

import collections
import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np

from data.corpus.paths import as_path
from data.store.checksums import measure_regular_file
from data.store.manifest import BLOCK_BYTES

RANGE_BYTES = 1 << 16  # bytes of a request, a multiple of the bytes that have a checksum
CACHE_BYTES = 1 << 28  # bytes of cached ranges
MAX_REQUESTS = 16  # concurrent requests
MAX_ATTEMPTS = 5
RETRY_SECONDS = 0.25  # seconds before the second attempt; the pause is four times longer each time


def open_ranges(path: Any, dtype: np.dtype, count: int, sums: np.ndarray) -> "RangedArray":
    """Return the numbers of a remote file; arguments as of `RangedArray`."""
    read = functools.partial(read_range, str(path))
    measure = functools.partial(measure_regular_file, path)
    return RangedArray(str(path), read, dtype, count, sums, measure)


class RangedArray:
    """A read-only array of one axis that supports `len`, `dtype`, `take` and indexing.

    Reading raises the error of the storage if all attempts fail, and ValueError if the bytes have
    changed since they were written.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[int, int], bytes],
        dtype: np.dtype | str,
        count: int,
        sums: np.ndarray,
        measure: Callable[[], int] | None = None,
    ) -> None:
        """Initialize the array; nothing is read yet.

        Args:
          read: (start, end) -> bytes [start, end) of the file.
          sums: uint32, the crc32c of each block of the file.
          measure: returns the file's size, for the error of a file that has shrunk.
        """
        self.name, self.read, self.measure = name, read, measure
        self.dtype, self.count = np.dtype(dtype), count
        self.sums, self.size = sums, count * self.dtype.itemsize
        self.ranges: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return self.count

    def take(self, index: Any, axis: None = None, out: None = None, mode: str = "clip") -> Any:
        """Return the numbers at indices of any shape, as np.take with mode "clip"."""
        index = np.clip(np.asarray(index, np.int64), 0, self.count - 1)
        range_size = RANGE_BYTES // self.dtype.itemsize
        numbers, inverse = np.unique(index // range_size, return_inverse=True)
        if not len(numbers):
            return np.zeros(index.shape, self.dtype)
        ranges = self.load_ranges(numbers.tolist())
        padding = range_size - len(ranges[-1])  # the last range of the file may be shorter
        table = np.concatenate([*ranges, np.zeros(padding, self.dtype)]).reshape(-1, range_size)
        return table[inverse.reshape(index.shape), index % range_size]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            index = np.arange(self.count)[index] if index.step else self.slice_to_indices(index)
        return self.take(index)

    def slice_to_indices(self, index: slice) -> np.ndarray:
        """Return the indices of a slice without a step."""
        return np.arange(*index.indices(self.count)[:2])

    def load_ranges(self, numbers: list[int]) -> list[np.ndarray]:
        """Return ranges by their numbers, from the cache or the storage."""
        with self.lock:
            found = {number: self.ranges[number] for number in numbers if number in self.ranges}
            for number in found:
                self.ranges.move_to_end(number)
        absent = [number for number in numbers if number not in found]
        if len(absent) == 1:
            found[absent[0]] = self.fetch_range(absent[0])
        elif absent:
            with concurrent.futures.ThreadPoolExecutor(min(MAX_REQUESTS, len(absent))) as pool:
                found |= dict(zip(absent, pool.map(self.fetch_range, absent), strict=True))
        with self.lock:
            for number in absent:
                self.ranges[number] = found[number]
            while len(self.ranges) * RANGE_BYTES > CACHE_BYTES:
                self.ranges.popitem(last=False)
        return [found[number] for number in numbers]

    def fetch_range(self, number: int) -> np.ndarray:
        """Read a range; a failed request or a wrong checksum is tried again."""
        start, end = number * RANGE_BYTES, min((number + 1) * RANGE_BYTES, self.size)
        expected = self.sums[start // BLOCK_BYTES : -(-end // BLOCK_BYTES)].tolist()
        for attempt in range(MAX_ATTEMPTS):
            try:
                raw = self.read(start, end)
            except Exception:  # storage libraries have no common exception
                if attempt == MAX_ATTEMPTS - 1:
                    self.check_size()
                    raise
                time.sleep(RETRY_SECONDS * 4**attempt)
                continue
            sums = [
                google_crc32c.value(raw[i : i + BLOCK_BYTES])
                for i in range(0, len(raw), BLOCK_BYTES)
            ]
            if len(raw) == end - start and sums == expected:
                return np.frombuffer(raw, self.dtype)
        self.check_size()
        raise ValueError(
            f"{self.name}: bytes {start:,} to {end:,} have changed since they were written: "
            "copy it again, or prepare it again (--overwrite)"
        )

    def check_size(self) -> None:
        """Raise ValueError if the file is shorter than it was when it was written."""
        if self.measure and (size := self.measure()) < self.size:
            raise ValueError(
                f"{self.name} has {size:,} bytes, and had {self.size:,} when it was written: "
                "copy it again, or prepare it again (--overwrite)"
            )


def read_range(path: str, start: int, end: int) -> bytes:
    """Return bytes [start, end) of a remote file.

    The storage library may fetch more: epath reads with TensorFlow, which fetches at least 512 KiB.
    """
    with as_path(path).open("rb") as file:
        file.seek(start)
        return file.read(end - start)
