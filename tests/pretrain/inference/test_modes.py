"""Mode tokens precede what a trained model reads."""

import pytest

from data.mixed import Mixed, MixedPart
from data.objectives import CausalLm, SpanCorruption
from pretrain.inference.modes import add_mode, list_modes

pytestmark = pytest.mark.fast


class Vocabulary:
    pieces = ("a", "[R]", "[S]", "b")


def test_modes_are_those_of_the_parts_each_once():
    parts = [("x", "[S]"), ("y", "[R]"), ("z", "[S]"), ("plain", "")]
    mixed = Mixed(tuple(MixedPart(name, SpanCorruption(mode=mode)) for name, mode in parts))
    assert list_modes(mixed, Vocabulary) == [2, 1]
    assert list_modes(SpanCorruption(mode="[R]"), Vocabulary) == [1]
    assert list_modes(SpanCorruption(), Vocabulary) == list_modes(CausalLm(), Vocabulary) == []


def test_a_row_begins_with_the_first_unless_it_has_one():
    assert add_mode([0, 3], [2, 1]) == [2, 0, 3]
    assert add_mode([1, 3], [2, 1]) == [1, 3]
    assert add_mode([], [2]) == [2] and add_mode([0], []) == [0]
