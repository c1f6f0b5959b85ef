"""A store in a bucket is read by ranges: the values are the store's, and only the bytes that
batches need are read.
"""

import collections
import os
import pathlib
import threading

import numpy as np
import pytest
from etils.epath import backend

from data.config import Data
from data.objectives import CausalLm, MaskedLm, SentencePair
from data.pipeline import Stream
from data.store import ranged
from data.store.manifest import BLOCK_BYTES
from data.store.ranged import RANGE_BYTES, RangedArray
from data.store.reader import Store
from tests.local_bucket import Bucket
from tests.small_store import write_store
from tests.store_files import generation_folder


class Counting:
    """Open a file and count its reads under its name."""

    def __init__(self, file, read, name):
        self.file, self.bytes_read, self.name = file, read, name

    def read(self, size=-1):
        raw = self.file.read(size)
        self.bytes_read[self.name] += len(raw)
        return raw

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


class CountingBucket(Bucket):
    """A bucket that counts the bytes read of each file."""

    def __init__(self, root):
        super().__init__(root)
        self.bytes_read, opened = collections.Counter(), self.open
        self.open = lambda path, mode: Counting(
            opened(path, mode), self.bytes_read, pathlib.PurePath(path).name
        )


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return {name: bytes read} of a bucket in the folder `tmp_path`."""
    stand_in = CountingBucket(tmp_path)
    monkeypatch.setattr(backend, "tf_backend", stand_in)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return stand_in.bytes_read


@pytest.fixture
def large(tmp_path, vocabulary, documents):
    """Return the path of a store whose tokens fill some 30 ranges."""
    rng, ids = np.random.default_rng(0), np.arange(vocabulary.size)[~vocabulary.special]
    many = [[rng.choice(ids, 400).tolist() for _ in range(5)] for _ in range(500)]
    write_store(tmp_path / "large", vocabulary, many, heldout=documents[:3])
    return tmp_path / "large"


OBJECTIVES = {
    "masked": MaskedLm(length=64, max_predictions=9),
    "pairs": SentencePair(length=64, max_predictions=9),
    "causal": CausalLm(length=64, end_of_text=False),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batches_are_those_of_the_store_here(bucket, large, name):
    data = Data(objective=OBJECTIVES[name], batch_size=16)
    here, there = (Stream(Store.open(path), data, seed=2) for path in (large, "gs://bucket/large"))
    for step in (0, 1, 77):
        expected, found = here.build_batch(step), there.build_batch(step)
        assert all(np.array_equal(expected[key], found[key]) for key in expected)
    read = next(there.iterate_batches(5))
    assert all(np.array_equal(here.build_batch(5)[key], read[key]) for key in read)


def test_no_host_reads_more_than_its_rows_need(bucket, large):
    """Two hosts read half of each batch; each starts with an empty cache."""
    size = (generation_folder(large) / "train" / "tokens.bin").stat().st_size
    data, steps = Data(objective=OBJECTIVES["causal"], batch_size=4), 3
    for lo, hi in ((0, 2), (2, 4)):
        bucket.clear()
        store = Store.open("gs://bucket/large")
        stream = Stream(store, data, seed=2)
        assert bucket["tokens.bin"] == 0  # opening it and building its table of rows reads none
        for step in range(steps):
            stream.build_batch(step, lo, hi)
        rows = steps * (hi - lo)
        # A row of 65 tokens is in one range or in two.
        assert 0 < bucket["tokens.bin"] <= 2 * rows * RANGE_BYTES < size
    before = bucket["tokens.bin"]
    stream.build_batch(0, 2, 4)
    assert bucket["tokens.bin"] == before  # it is still cached
    assert not list(pathlib.Path(os.environ["XDG_CACHE_HOME"]).rglob("tokens.bin"))


def test_small_files_are_copied_once(bucket, large):
    Store.open("gs://bucket/large")
    copied = sum(bucket.values())
    bucket.clear()
    store = Store.open("gs://bucket/large")
    assert store.vocabulary.size == 96
    assert set(bucket) == {"manifest.json"} and copied > 2 * sum(bucket.values())


def test_a_rewrite_beside_it_does_not_touch_an_opened_store(bucket, large, vocabulary, documents):
    from tests.data.store.test_generations import rewrite_store

    store = Store.open("gs://bucket/large")
    expected = Store.open(large)  # the reader's lock protects the generation; a bucket protects all
    rewrite_store(large, vocabulary, documents[:5])
    found = store.open_split("train").tokens[100_000:100_050]
    assert np.array_equal(found, expected.open_split("train").tokens[100_000:100_050])
    assert len(Store.open("gs://bucket/large").open_split("train").tokens) < 10_000


@pytest.mark.parametrize("on_corrupt", ["refuse", "skip"])
def test_damage_is_found(bucket, large, on_corrupt):
    tokens = generation_folder(large) / "train" / "tokens.bin"
    raw = bytearray(tokens.read_bytes())
    raw[3 * RANGE_BYTES + 5] ^= 1
    tokens.write_bytes(raw)
    store = Store.open("gs://bucket/large")
    if on_corrupt == "skip":  # this option copies all of it and checks it meanwhile
        with pytest.raises(ValueError, match=r"tokens.bin: crc32c"):
            store.verify_or_salvage(on_corrupt)
        return
    store = store.verify_or_salvage(on_corrupt)
    with pytest.raises(ValueError, match="tokens.bin: crc32c"):
        store.verify_checksums()
    numbers = store.open_split("train").tokens
    assert len(numbers[:100]) == 100
    with pytest.raises(ValueError, match=r"tokens.bin: bytes 196,608 to 262,144 have changed"):
        numbers[3 * RANGE_BYTES // 2 : 3 * RANGE_BYTES // 2 + 5]
    os.truncate(tokens, len(raw) - 2)
    with pytest.raises(ValueError, match="tokens.bin has"):
        Store.open("gs://bucket/large")


def test_an_object_that_shrinks_is_named_with_both_sizes(bucket, large, monkeypatch):
    monkeypatch.setattr(ranged, "RETRY_SECONDS", 0)
    stream = Stream(Store.open("gs://bucket/large"), Data(objective=OBJECTIVES["causal"]))
    tokens = generation_folder(large) / "train" / "tokens.bin"
    size = tokens.stat().st_size
    os.truncate(tokens, 1000)
    message = rf"tokens.bin has 1,000 bytes, and had {size:,} when it was written"
    with pytest.raises(ValueError, match=message):
        stream.build_batch(0)


def make_ranged(raw, dtype="<u2", read=None):
    import google_crc32c

    sums = [
        google_crc32c.value(raw[at : at + BLOCK_BYTES]) for at in range(0, len(raw), BLOCK_BYTES)
    ]
    numbers = np.frombuffer(raw, dtype)
    take = read or (lambda start, end: raw[start:end])
    return numbers, RangedArray("f", take, dtype, len(numbers), np.array(sums, "<u4"))


@pytest.mark.parametrize(
    "size", [2, BLOCK_BYTES, RANGE_BYTES - 2, RANGE_BYTES, RANGE_BYTES + 2, 3 * RANGE_BYTES + 700]
)
def test_it_reads_as_an_array_does(size):
    rng = np.random.default_rng(size)
    numbers, found = make_ranged(rng.bytes(size))
    assert len(found) == len(numbers) and found.dtype == numbers.dtype
    index = rng.integers(-3, len(numbers) + 3, (5, 7))
    assert np.array_equal(
        np.take(found, index, mode="clip"), np.take(numbers, np.maximum(index, 0), mode="clip")
    )
    for part in (slice(None), slice(-3, None), slice(1, 1), slice(0, None, 3)):
        assert np.array_equal(found[part], numbers[part])
    assert found[np.zeros((0, 4), int)].shape == (0, 4)


def test_memory_is_bounded_and_threads_share_it(monkeypatch):
    monkeypatch.setattr(ranged, "CACHE_BYTES", 3 * RANGE_BYTES)
    raw, asked = np.random.default_rng(0).bytes(9 * RANGE_BYTES), collections.Counter()

    def read_range(start, end):
        asked[start] += 1
        return raw[start:end]

    numbers, found = make_ranged(raw, read=read_range)
    assert np.array_equal(found[:], numbers) and len(found.ranges) == 3
    wrong = []

    def take_randomly(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            index = rng.integers(0, len(numbers), 50)
            if not np.array_equal(found.take(index), numbers[index]):
                wrong.append(seed)

    threads = [threading.Thread(target=take_randomly, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(found.ranges) <= 3 and sum(asked.values()) > 9


def test_a_range_damaged_in_transit_is_read_again(monkeypatch):
    raw, tries = np.random.default_rng(0).bytes(RANGE_BYTES), []

    def read_range(start, end):
        tries.append(start)
        return raw[start : end - 7] if len(tries) < 3 else raw[start:end]

    numbers, found = make_ranged(raw, read=read_range)
    assert np.array_equal(found[:9], numbers[:9]) and len(tries) == 3


def test_a_request_that_fails_is_made_again_and_its_last_error_is_raised(monkeypatch):
    monkeypatch.setattr(ranged, "RETRY_SECONDS", 0.001)
    raw, tries, failing = np.random.default_rng(0).bytes(RANGE_BYTES), [], [4]

    def read_range(start, end):
        tries.append(start)
        if len(tries) <= failing[0]:
            raise ConnectionError(f"attempt {len(tries)}")
        return raw[start:end]

    numbers, found = make_ranged(raw, read=read_range)
    assert np.array_equal(found[:9], numbers[:9]) and len(tries) == 5
    tries.clear()
    failing[0] = 99
    _, found = make_ranged(raw, read=read_range)
    with pytest.raises(ConnectionError, match="attempt 5"):
        found[:9]
