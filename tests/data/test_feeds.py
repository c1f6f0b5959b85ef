"""The feeds of data/read_ahead.py: how far they build ahead, how they end, and what they import."""

import contextlib
import itertools
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from data import read_ahead
from data.members import has_module
from data.read_ahead import ENDLESS, FEEDS, MAX_BATCHES, BuildPlan, choose_feed
from tests.feeds import needs_tensorflow, with_each_feed

ROOT = pathlib.Path(__file__).parents[2]
SPEC = {"x": (np.dtype(np.int64), (2, 3))}
SMALL = 1  # tokens of a batch, so that a call makes as many as it may
LARGE = 1 << 22  # so that a call makes one


def make_plan(build, start=0, stop=ENDLESS, tokens=LARGE, threads=1, prefetch=2):
    """Return a plan of batches {"x": [2, 3]} that are filled with their number.

    build: (number of the first batch, number of batches) -> None, called before each call.
    """

    def build_batches(first, number):
        build(first, number)
        numbers = np.arange(first, first + number)
        return {"x": np.repeat(numbers, 6).reshape(-1, 3)}

    return BuildPlan(build_batches, SPEC, start, stop, 2, tokens, threads, prefetch)


def ignore_call(first, number):
    pass


def read_numbers(batches):
    """Return the numbers of batches, each of which is whole."""
    numbers = []
    for batch in batches:
        assert batch["x"].shape == (2, 3) and (batch["x"] == batch["x"][0, 0]).all()
        numbers.append(int(batch["x"][0, 0]))
    return numbers


def list_builders():
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def wait_until(is_true, seconds=20.0):
    end = time.monotonic() + seconds
    while not is_true() and time.monotonic() < end:
        time.sleep(0.01)
    return is_true()


@with_each_feed
@pytest.mark.parametrize("tokens", [SMALL, LARGE])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (3, 8), (5, 5 + 3 * MAX_BATCHES + 2)])
def test_a_plan_with_an_end_is_read_to_its_end(feed, tokens, start, stop):
    plan = make_plan(ignore_call, start, stop, tokens, threads=2, prefetch=3)
    assert read_numbers(read_ahead.read_ahead(plan, feed)) == [*range(start, stop)]


@with_each_feed
def test_the_last_step_that_is_counted_can_be_read(feed):
    plan = make_plan(ignore_call, ENDLESS - 2, ENDLESS)
    assert read_numbers(read_ahead.read_ahead(plan, feed)) == [ENDLESS - 2, ENDLESS - 1]


@with_each_feed
def test_an_exception_comes_after_the_batches_before_it(feed):
    """The failing batch is in the middle of a call of several."""

    def fail_on(first, number):
        if first <= 2 * MAX_BATCHES + 5 < first + number:
            raise LookupError("this one")

    for threads in (1, 3):
        plan, read = make_plan(fail_on, tokens=SMALL, threads=threads), []
        batches = read_ahead.read_ahead(plan, feed)
        with pytest.raises(LookupError, match="^this one$"):
            read.extend(read_numbers(batches))
        with contextlib.closing(read_ahead.read_ahead(plan, feed)) as batches:
            read = [next(batches) for _ in range(2 * MAX_BATCHES + 5)]
            assert read_numbers(read) == [*range(len(read))]
            with pytest.raises(LookupError, match="^this one$"):
                next(batches)
            assert next(batches, None) is None  # an iterator that has failed has ended


@with_each_feed
def test_a_call_that_fails_once_is_repeated_batch_by_batch(feed):
    calls = []

    def fail_first(first, number):
        calls.append((first, number))
        if len(calls) == 1:
            raise OSError("a short one")

    plan = make_plan(fail_first, 0, 2 * MAX_BATCHES, tokens=SMALL)
    assert read_numbers(read_ahead.read_ahead(plan, feed)) == [*range(2 * MAX_BATCHES)]
    assert {(step, 1) for step in range(MAX_BATCHES)} < {*calls}


@with_each_feed
@pytest.mark.parametrize(("threads", "prefetch"), [(1, 1), (1, 5), (3, 2)])
@pytest.mark.parametrize("tokens", [SMALL, LARGE])
def test_no_more_is_built_ahead_than_asked_for(feed, tokens, threads, prefetch):
    """A reader that waits finds at least `prefetch` batches ready, and a bounded number of others."""
    built = []
    plan = make_plan(
        lambda first, number: built.extend(range(first, first + number)),
        tokens=tokens,
        threads=threads,
        prefetch=prefetch,
    )
    size = MAX_BATCHES if tokens == SMALL else 1
    most = (threads + 2 - (-prefetch // size)) * size  # calls that run, that wait, that are read
    with contextlib.closing(read_ahead.read_ahead(plan, feed)) as batches:
        for number in range(1, 3 * size + 2):
            next(batches)
            if number % size < 2:
                assert wait_until(lambda number=number: len(built) >= number + prefetch)
        time.sleep(0.3)
        assert len(built) - number <= most


@with_each_feed
def test_batches_are_read_only(feed):
    """Batches of one call share memory."""
    with contextlib.closing(read_ahead.read_ahead(make_plan(ignore_call), feed)) as batches:
        batch = next(batches)
    with pytest.raises(ValueError, match="read-only"):
        batch["x"][0] = 7


# ---- how threads end -----------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "dropped", "read to the end", "failed", "never begun"])
def test_no_thread_outlives_its_reader(how):
    def fail_on(first, number):
        if how == "failed" and first == 2:
            raise LookupError

    before = list_builders()
    plan = make_plan(fail_on, stop=5, threads=3)
    batches = read_ahead.read_ahead(plan, "threads")
    if how != "never begun":
        next(batches)
        assert len(list_builders()) == len(before) + 3
    if how == "closed":
        batches.close()
    elif how == "failed":
        with pytest.raises(LookupError):
            list(batches)
    elif how == "read to the end":
        list(batches)
    del batches
    assert list_builders() == before


def test_a_closed_reader_waits_for_the_call_that_runs_and_drops_those_that_wait():
    begun, ended = [], []

    def take_long(first, number):
        begun.append(first)
        if first:
            time.sleep(0.3)
        ended.append(first)

    batches = read_ahead.read_ahead(make_plan(take_long, prefetch=5), "threads")
    next(batches)
    assert wait_until(lambda: len(begun) == 2)
    batches.close()
    assert begun == ended == [0, 1]
    time.sleep(0.1)
    assert begun == [0, 1]


def test_what_ends_a_thread_is_raised_in_the_reader():
    """`sys.exit` in a thread would end that thread alone, and its reader would wait for ever."""

    def leave(first, number):
        sys.exit("left")

    with pytest.raises(SystemExit, match="left"):
        next(read_ahead.read_ahead(make_plan(leave), "threads"))


PROGRAM = """
import sys, threading, time
from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import Stream
from data.store.reader import Store

objective = MaskedLm(length=22, max_predictions=4, rows="documents")
stream = Stream(Store.open(sys.argv[1]), Data(objective=objective, feed=sys.argv[2], threads=2))
batch = stream.build_batch
stream.build_batch = lambda *args: time.sleep(0.3) or batch(*args)
iterator = stream.iterate_batches()
next(iterator)
print("read", flush=True)
"""


def start_program(store, feed, end, begin=""):
    return subprocess.Popen(
        [sys.executable, "-c", begin + PROGRAM + end, store.path, feed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feed", "end", "status"),
    [
        pytest.param("tfdata", "", 0, marks=needs_tensorflow),
        ("threads", "", 0),
        ("threads", "sys.exit(3)", 3),
        ("threads", "raise LookupError", 1),
        ("threads", "circle = []; circle += [circle, iterator]; del iterator, circle", 0),
    ],
)
def test_a_program_ends_while_batches_are_being_built(store, feed, end, status):
    with start_program(store, feed, end) as process:
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (status, "read\n"), stderr
    assert ("LookupError" in stderr) == (status == 1) and "Fatal" not in stderr


@pytest.mark.held_by("threads")
@with_each_feed
@pytest.mark.slow
def test_an_interrupt_ends_a_reader_that_waits(store, feed):
    with start_program(store, feed, "while True: next(iterator)") as process:
        assert process.stdout.readline() == "read\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in stderr and process.returncode == -signal.SIGINT


@pytest.mark.slow
def test_a_call_that_hangs_does_not_keep_the_program_from_ending(store):
    """A disk that never answers holds a thread for ever, not the program."""
    begin = "import data.thread_feed; data.thread_feed.EXIT_SECONDS = 0.2\n"
    end = "time.sleep = lambda seconds: threading.Event().wait(); next(iterator)"
    with start_program(store, "threads", end, begin) as process:
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr


# ---- which feed, and what it imports --------------------------------------------


def read_loaded(code):
    """Return what a new Python prints that runs `code` in the project's folder."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


CHOOSE = "import sys; from data.read_ahead import choose_feed; print(choose_feed('auto'), 'tensorflow' in sys.modules)"


def test_auto_is_tfdata_only_where_tensorflow_is_installed(tmp_path):
    """To choose imports nothing; a folder that is called like the package is no package."""
    assert choose_feed("threads") == "threads"
    without = f"import sys; sys.modules['tensorflow'] = None; {CHOOSE}"
    assert read_loaded(without)[0] == "threads"
    (tmp_path / "lonely").mkdir()
    folder = f"import sys; sys.path.append({str(tmp_path)!r}); import data.members as t"
    assert read_loaded(f"{folder}; print(t.has_module('lonely'), t.has_module('numpy'))") == [
        "False",
        "True",
    ]
    if has_module("tensorflow"):
        assert read_loaded(CHOOSE) == ["tfdata", "False"]


def test_a_tensorflow_that_cannot_be_imported_is_named_with_the_way_around(tmp_path, store):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.13: no\\nsuch file')")
    with start_program(
        store, "auto", "", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    ) as process:
        _, stderr = process.communicate(timeout=120)
    assert stderr.splitlines()[-1] == (
        "ValueError: tf.data needs TensorFlow, which is installed but fails to import "
        "(libcudart.so.13: no such file): install Cloze with its extra `tfdata` (in a checkout: "
        "pip install -e '.[tfdata]'), or train with data.feed=threads"
    )


@pytest.mark.parametrize(("name", "other"), [*itertools.permutations(FEEDS.values())])
def test_neither_feed_imports_the_other(name, other):
    code = f"import sys, data.{name}; print('data.{other}' in sys.modules, 'data.{name}' in sys.modules)"
    assert read_loaded(code) == ["False", "True"]
