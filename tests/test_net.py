"""tests/net.py detects every kind of difference."""

import numpy as np
import pytest

from tests.net import compare_arrays, compare_tensors, format_row

TENSORS = {
    "params/a": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4),
    "batch/0": np.arange(5, dtype=np.int32),
    "loss": np.float32(2),
}


def compare_changed(name, change):
    """Compare the tensors with a copy in which one is changed."""
    copy = {key: np.array(array) for key, array in TENSORS.items()}
    copy[name] = change(copy[name])
    return {each.name: each for each in compare_arrays(TENSORS, copy)}


def with_value(value):
    def set_value(array):
        array.flat[1] = value
        return array

    return set_value


def test_equal_tensors_pass():
    found = compare_arrays(TENSORS, {key: np.array(array) for key, array in TENSORS.items()})
    assert len(found) == 3 and all(each.equal and each.is_within(0.0) for each in found)
    assert format_row("bert", found, 0.0).split() == ["bert", "3", "yes", "0", "ok"]


def test_one_bit_is_a_difference():
    found = compare_changed(
        "params/a", lambda array: with_value(np.nextafter(array.flat[1], np.float32(9)))(array)
    )
    assert (
        not found["params/a"].equal
        and not found["params/a"].is_within(0.0)
        and found["params/a"].is_within(2e-6)
    )
    assert found["loss"].equal
    assert "1 FAILED" in format_row("bert", list(found.values()), 0.0) and "params/a" in format_row(
        "bert", list(found.values()), 0.0
    )


def test_minus_zero_is_not_zero():
    zeros = np.zeros(3, np.float32)
    assert not compare_tensors("params/a", zeros, -zeros).is_within(0.0)


def test_a_difference_is_relative_to_the_tensor_and_at_least_to_a_hundredth_of_the_largest():
    old = {
        "gradient/large": np.float32([0.5, 1e-3]),
        "gradient/small": np.float32([1e-2, 0]),
        "gradient/rounding": np.float32([1e-9, 0]),
    }
    by = {
        each.name: each
        for each in compare_arrays(
            old, {name: tensor * np.float32([1.001, 1]) for name, tensor in old.items()}
        )
    }
    assert (
        by["gradient/large"].difference
        == pytest.approx(1e-3, rel=1e-2)
        == by["gradient/small"].difference
    )
    assert by["gradient/rounding"].difference == pytest.approx(2e-10, rel=1e-2) and by[
        "gradient/rounding"
    ].is_within(2e-6)
    assert not by["gradient/large"].is_within(2e-6) and not by["gradient/small"].is_within(2e-6)


def test_no_tolerance_holds_for_integers_and_masks():
    assert not compare_changed("batch/0", with_value(7))["batch/0"].is_within(2e-6)
    mask = np.zeros(2, np.float32)
    assert not compare_tensors("mask/0", mask, mask + np.float32(1e-9)).is_within(2e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_fails_on_either_side_and_on_both(value):
    assert (
        "not finite in the new"
        in compare_changed("params/a", with_value(value))["params/a"].problem
    )
    broken = with_value(value)(np.array(TENSORS["params/a"]))
    for old, new in ((broken, TENSORS["params/a"]), (broken, broken)):
        assert not compare_tensors("params/a", old, new).is_within(2e-6)


def test_a_missing_tensor_fails_on_either_side():
    less = {key: array for key, array in TENSORS.items() if key != "loss"}
    for old, new, side in ((TENSORS, less, "new"), (less, TENSORS, "old")):
        missing = next(each for each in compare_arrays(old, new) if each.name == "loss")
        assert missing.problem == f"missing in the {side} tree" and not missing.is_within(2e-6)


def test_another_shape_or_type_fails():
    assert (
        "became float64[3, 4]"
        in compare_changed("params/a", lambda array: array.astype(np.float64))["params/a"].problem
    )
    assert (
        "became float32[4, 3]"
        in compare_changed("params/a", lambda array: array.reshape(4, 3))["params/a"].problem
    )
