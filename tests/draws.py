"""Settings of hypothesis by which the suite draws some examples, and the whole board more."""

import os

from hypothesis import HealthCheck, settings

# A machine that others use draws slowly; how slowly says nothing about the code. conftest.py imports
# this before the tests, whose own settings begin with these.
settings.register_profile("cloze", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cloze")
IS_BOARD = os.environ.get("CLOZE_BOARD") == "whole"


def draw_examples(some: int, all: int) -> settings:
    """Return the settings of a test with so many examples in the suite and on the whole board."""
    return settings(max_examples=all if IS_BOARD else some, deadline=None)
