"""A memory-mapped file that another program truncates: an error that names it, and no SIGBUS."""

import gc
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from data.config import Data
from data.images.image_store import ImageRequest, write_image_store
from data.objectives import CausalLm, MaskedLm
from data.objectives.image_classification import ImageClassification
from data.pipeline import Stream
from data.store import mapped
from data.store.mapped import check_mapped_files, map_numbers, read_checked
from data.store.reader import SalvagedStore
from tests.image_files import write_class_folders
from tests.small_store import write_store
from tests.store_files import generation_folder

DTYPE = np.dtype("<u4")
COUNT = 1 << 18


@pytest.fixture
def numbers(tmp_path):
    np.arange(COUNT, dtype=DTYPE).tofile(tmp_path / "numbers.bin")
    return map_numbers(tmp_path / "numbers.bin", DTYPE, COUNT)


def test_the_numbers_are_those_of_the_file_and_read_only(numbers, tmp_path):
    assert np.array_equal(numbers, np.arange(COUNT)) and not numbers.flags.writeable
    assert np.array_equal(map_numbers(tmp_path / "numbers.bin", DTYPE), numbers)
    with pytest.raises(ValueError, match=r"numbers.bin has 1,048,576 bytes, and 262,145 numbers"):
        map_numbers(tmp_path / "numbers.bin", DTYPE, COUNT + 1)
    (tmp_path / "empty").touch()
    assert len(map_numbers(tmp_path / "empty", DTYPE)) == 0


READS = {
    "take": lambda numbers, index: np.take(numbers, index, mode="clip"),
    "index": lambda numbers, index: numbers[index],
    "slice": lambda numbers, index: numbers[1000:].copy(),
    "sum": lambda numbers, index: numbers.sum(),
    "search": lambda numbers, index: np.searchsorted(numbers, index),
}


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_file_that_shrinks_between_the_check_and_the_read(numbers, tmp_path, name, in_thread):
    """The pages are gone while NumPy reads them, with and without the interpreter's lock."""
    errors, index = [], np.arange(0, COUNT, 97)

    def read():
        os.truncate(tmp_path / "numbers.bin", 10_000)
        return READS[name](numbers, index)

    def read_and_note():
        try:
            read_checked(read, tmp_path)()
        except ValueError as error:
            errors.append(str(error))

    if in_thread:
        thread = threading.Thread(target=read_and_note)
        thread.start()
        thread.join()
    else:
        read_and_note()
    (error,) = errors
    assert str(tmp_path / "numbers.bin") in error
    assert "has 10,000 bytes, and had 1,048,576" in error
    with open(tmp_path / "numbers.bin", "ab") as file:
        file.truncate(4 * COUNT)
    if sys.platform == "linux":
        with pytest.raises(ValueError, match="was shorter for a while"):
            check_mapped_files(tmp_path)


def test_a_file_that_is_no_longer_mapped_is_not_checked(tmp_path):
    np.arange(COUNT, dtype=DTYPE).tofile(tmp_path / "numbers.bin")
    view = map_numbers(tmp_path / "numbers.bin", DTYPE, COUNT)[5:10]
    gc.collect()
    os.truncate(tmp_path / "numbers.bin", 30)
    with pytest.raises(ValueError, match="has 30 bytes"):
        check_mapped_files(tmp_path)
    check_mapped_files(tmp_path.parent)
    del view
    gc.collect()
    check_mapped_files(tmp_path)


PROGRAM = """
import os, pathlib, sys
import numpy as np
from data.store import mapped
path = pathlib.Path(sys.argv[1])
numbers = mapped.map_numbers(path, np.dtype("<u4"))
if sys.argv[2] == "ours":
    os.truncate(path, 100)
    print(numbers.sum())
else:
    import mmap
    with open(path, "r+b") as file:
        pages = mmap.mmap(file.fileno(), 1 << 20)
        os.truncate(path, 0)
        print(pages[5000])
"""


@pytest.mark.slow
def test_outside_of_checked_reads_the_process_ends_with_a_line(numbers, tmp_path):
    """A fault of memory that is not ours is left to the handler that was there before."""
    root = pathlib.Path(__file__).parents[3]
    path = tmp_path / "numbers.bin"
    words = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run([*words, "ours"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"error: {path} was truncated while it was read\n" and not done.stdout
    np.arange(COUNT, dtype=DTYPE).tofile(path)
    done = subprocess.run([*words, "theirs"], cwd=root, capture_output=True, text=True)
    assert done.returncode == -7 and not done.stderr


# ---- stores -------------------------------------------------------------------


@pytest.fixture
def text_store(tmp_path, vocabulary, documents):
    return write_store(tmp_path / "store", vocabulary, documents * 20, heldout=documents[:9])


def read_until_it_shrinks(stream, path, read):
    """Check that `read` works, and raises an error that names the file once it is shorter."""
    read(stream)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    message = f"{path} has {size // 2:,} bytes, and had {size:,} when it was opened"
    with pytest.raises(ValueError, match=re.escape(message)):
        read(stream)


@pytest.mark.parametrize(
    ("name", "on_corrupt"),
    [("tokens", "refuse"), ("tokens", "skip"), ("documents", "refuse"), ("sentences", "refuse")],
)
def test_a_token_store_that_shrinks(text_store, name, on_corrupt):
    if on_corrupt == "skip":
        with open(generation_folder(text_store.path) / "train" / "tokens.bin", "r+b") as file:
            file.write(b"\0\0\1\0")
    store = text_store.verify_or_salvage(on_corrupt)
    assert isinstance(store, SalvagedStore) == (on_corrupt == "skip")
    objective = (
        MaskedLm(length=16, max_predictions=3)
        if name == "sentences"
        else CausalLm(length=8, end_of_text=False)
    )
    stream = Stream(store, Data(objective=objective, batch_size=4))
    path = generation_folder(text_store.path) / "train" / f"{name}.bin"
    read_until_it_shrinks(stream, path, lambda stream: stream.build_batch(0))


@pytest.mark.parametrize("feed", ["tfdata", "threads"])
def test_held_out_rows_that_shrink(text_store, feed):
    data = Data(objective=CausalLm(length=8, end_of_text=False), batch_size=4, feed=feed)
    stream = Stream(text_store, data, split="heldout")
    path = generation_folder(text_store.path) / "heldout" / "tokens.bin"
    read_until_it_shrinks(stream, path, lambda stream: list(stream.iterate_evaluation_batches()))


def test_a_store_of_images_that_shrinks(tmp_path):
    write_class_folders(tmp_path / "images")
    store = write_image_store(ImageRequest((str(tmp_path / "images"),)), tmp_path / "store")
    stream = Stream(store, Data(objective=ImageClassification(size=16), batch_size=4))
    for name in ("labels", "tokens"):
        path = generation_folder(tmp_path / "store") / "train" / f"{name}.bin"
        before = path.read_bytes()
        read_until_it_shrinks(stream, path, lambda stream: stream.build_batch(0))
        path.write_bytes(before)


def test_the_files_are_forgotten(tmp_path):
    gc.collect()
    before = len(mapped._files)
    np.arange(COUNT, dtype=DTYPE).tofile(tmp_path / "numbers.bin")
    numbers = map_numbers(tmp_path / "numbers.bin", DTYPE)
    assert len(mapped._files) == before + 1
    del numbers
    gc.collect()
    assert len(mapped._files) == before
