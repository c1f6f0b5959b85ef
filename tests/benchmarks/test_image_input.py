"""What a program builds while the other one has its turn does not count as read in its own."""

import time

import pytest

from benchmarks.image_input import ROWS, measure_reading

pytestmark = pytest.mark.fast


def iterate_slowly(num_ready):
    """Yield batches of which the first are ready, as they are after the other program's turn."""
    for i in range(1_000):
        if i >= num_ready:
            time.sleep(0.04)
        yield i


def test_batches_that_are_ready_are_not_counted():
    speeds = measure_reading(iterate_slowly(20), 0.2, time.perf_counter)
    assert speeds["wall"] <= ROWS / 0.04 and speeds["cpu"] <= ROWS / 0.04


def test_a_reader_that_is_always_ready_ends():
    assert measure_reading(iterate_slowly(1_000), 0.0001, time.perf_counter)["wall"] > 0
