"""What a program builds while the other one has its turn does not count as read in its own."""

import itertools
from types import SimpleNamespace

import pytest

from benchmarks.speed import image_input
from benchmarks.speed.image_input import ROWS, measure_reading

pytestmark = pytest.mark.fast
READY, BUILT = 0.001, 0.04  # seconds until a batch is read that is ready, and one that is built


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only reading moves, for the benchmark's."""
    clock = SimpleNamespace(now=100.0)
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(image_input, "time", clock)
    return clock


def iterate_batches(clock, num_ready):
    """Yield batches of which the first are ready, as they are after the other program's turn."""
    for i in itertools.count():
        clock.now += READY if i < num_ready else BUILT
        yield i


def test_batches_that_are_ready_are_not_counted(clock):
    speeds = measure_reading(iterate_batches(clock, 20), 0.2, lambda: clock.now / 2)
    assert speeds["wall"] == pytest.approx(ROWS / BUILT)
    assert speeds["cpu"] == pytest.approx(2 * ROWS / BUILT)


def test_a_reader_that_is_always_ready_ends(clock):
    speeds = measure_reading(iterate_batches(clock, 10**6), 0.2, lambda: clock.now)
    assert speeds["wall"] == pytest.approx(ROWS / READY)
