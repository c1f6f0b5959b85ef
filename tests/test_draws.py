"""Hypothesis' settings: a slow machine fails no test."""

import time

from hypothesis import given, settings
from hypothesis import strategies as some


@settings(max_examples=11, database=None)
@given(some.builds(time.sleep, some.just(0.1)))
def test_slow_draws_fail_no_test(slept):
    """Hypothesis' own settings stop after ten draws that take a second."""
    assert slept is None
