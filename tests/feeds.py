"""The two feeds of data/read_ahead.py, for tests that hold with either."""

import pytest

from data.members import has_module

needs_tensorflow = pytest.mark.skipif(
    not has_module("tensorflow"), reason="TensorFlow is not installed (extra `tfdata`)"
)
with_each_feed = pytest.mark.parametrize(
    "feed", [pytest.param("tfdata", marks=needs_tensorflow), "threads"]
)
