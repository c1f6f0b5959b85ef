"""The feeds of benchmarks/speed/input_step.py can be read."""

import pytest

from benchmarks.speed.input import make_stores
from benchmarks.speed.input_step import IndexFedStream, time_reading
from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import Stream


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    store = make_stores(tmp_path_factory.mktemp("stores"), 100_000)["bert"]
    data = Data(objective=MaskedLm(length=32, max_predictions=5), batch_size=4, threads=1)
    return Stream(store, data, seed=1)


def test_the_time_of_a_batch_is_measured_with_both_feeds(stream):
    assert time_reading(stream, 3) > 0 and time_reading(IndexFedStream(stream), 3) > 0
