"""Numbers of a file in a bucket, of which only the ranges are read that are asked for, each checked against its checksums.

Rows are shuffled, so a batch asks for many places that lie far apart. Ranges of RANGE bytes that are not in memory are read side by
side, and the last MEMORY bytes of them stay there. A file of a store has a crc32c of each 4 KiB (data/store/writer.py).
"""

import collections
import concurrent.futures
import threading
import time

import google_crc32c
import numpy as np

from data.corpus.paths import as_path
from data.store.writer import BLOCK

RANGE = 1 << 16  # bytes that are read at a time, a multiple of the bytes that have a checksum
MEMORY = 1 << 28  # bytes that are kept
REQUESTS = 16  # that wait for an answer at the same time
ATTEMPTS = 5
PAUSE = 0.25  # seconds before the second attempt where reading failed; four times as long each time after


class RangedArray:
    """A read-only array of one axis, as far as rows ask for one: `len`, `dtype`, `take` and slices.

    read: (start, end) -> bytes of the file; sums: crc32c of each block of it, uint32. Raises what `read` does where it fails again and again, and
    ValueError where bytes are not those that were written.
    """

    def __init__(self, name: str, read, dtype, count: int, sums: np.ndarray):
        self.name, self.read, self.dtype, self.count = name, read, np.dtype(dtype), count
        self.sums, self.size = sums, count * self.dtype.itemsize
        self.ranges: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()
        self.lock = threading.Lock()

    def __len__(self):
        return self.count

    def take(self, index, axis=None, out=None, mode="clip"):
        """Return the numbers at these places, an array of any shape; beyond an end the one there. As NumPy's."""
        index = np.clip(np.asarray(index, np.int64), 0, self.count - 1)
        each = RANGE // self.dtype.itemsize
        wanted, which = np.unique(index // each, return_inverse=True)
        if not len(wanted):
            return np.zeros(index.shape, self.dtype)
        parts = self.find_ranges(wanted.tolist())
        short = each - len(parts[-1])  # the last range of the file may be shorter
        table = np.concatenate([*parts, np.zeros(short, self.dtype)]).reshape(-1, each)
        return table[which.reshape(index.shape), index % each]

    def __getitem__(self, which):
        if isinstance(which, slice):
            which = np.arange(self.count)[which] if which.step else self.places(which)
        return self.take(which)

    def places(self, part: slice) -> np.ndarray:
        """Return the places of a slice without a step."""
        return np.arange(*part.indices(self.count)[:2])

    def find_ranges(self, numbers: list[int]) -> list[np.ndarray]:
        """Return ranges by their numbers, from memory or from the bucket."""
        with self.lock:
            found = {number: self.ranges[number] for number in numbers if number in self.ranges}
            for number in found:
                self.ranges.move_to_end(number)
        absent = [number for number in numbers if number not in found]
        if len(absent) == 1:
            found[absent[0]] = self.fetch(absent[0])
        elif absent:
            with concurrent.futures.ThreadPoolExecutor(min(REQUESTS, len(absent))) as pool:
                found |= dict(zip(absent, pool.map(self.fetch, absent), strict=True))
        with self.lock:
            for number in absent:
                self.ranges[number] = found[number]
            while len(self.ranges) * RANGE > MEMORY:
                self.ranges.popitem(last=False)
        return [found[number] for number in numbers]

    def fetch(self, number: int) -> np.ndarray:
        """Return the range of a number, read anew where it is not what was written: the way may have been at fault."""
        start, end = number * RANGE, min((number + 1) * RANGE, self.size)
        right = self.sums[start // BLOCK : -(-end // BLOCK)].tolist()
        for attempt in range(ATTEMPTS):
            try:
                raw = self.read(start, end)
            except Exception:  # whatever the storage's library raises for its network
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(PAUSE * 4**attempt)
                continue
            if len(raw) == end - start and right == [
                google_crc32c.value(raw[at : at + BLOCK]) for at in range(0, len(raw), BLOCK)
            ]:
                return np.frombuffer(raw, self.dtype)
        raise ValueError(
            f"{self.name}: bytes {start:,} to {end:,} have changed since they were written: copy it again, or prepare it again (--overwrite)"
        )


def read_range(path: str, start: int, end: int) -> bytes:
    """Return bytes [start, end) of a file in a bucket. What reads it may fetch more: TensorFlow, by which epath reads, half a MiB at least."""
    with as_path(path).open("rb") as file:
        file.seek(start)
        return file.read(end - start)
