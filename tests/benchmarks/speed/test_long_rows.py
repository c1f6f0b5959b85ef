"""Models of long rows are measured side by side, and their exponents held against the claims."""

from functools import partial

import jax
import numpy as np
import pytest

from benchmarks.speed import long_rows
from benchmarks.speed.long_row_models import MODELS, find_stride, make_model
from benchmarks.speed.long_rows import (
    PASSES,
    QUANTITIES,
    fit_exponent,
    format_exponents,
    list_lengths,
    measure_lengths,
)


def make_measures(exponent, lengths=(512, 1_024, 2_048, 4_096, 8_192)):
    row = {length: 1e-9 * length**exponent for length in lengths}
    return {
        (quantity, kind): {spec.name: row for spec in MODELS}
        for quantity in QUANTITIES
        for kind in PASSES
    }


@pytest.mark.parametrize("spec", MODELS, ids=[spec.name for spec in MODELS])
def test_each_model_reads_a_row_of_any_length(spec):
    for length in (512, 2_048):
        model, ids = make_model(spec, length), np.zeros((1, length), np.int32)
        mask = (np.ones(ids.shape, bool),) if spec.reads_mask else ()
        init = partial(model.init_with_output, jax.random.key(0), method=spec.method)
        states, variables = jax.eval_shape(init, ids, *mask)
        shape = (states[0] if isinstance(states, tuple) else states).shape
        assert shape[:2] == (1, length) and shape[2] % 128 == 0
        assert len({spec.name for spec in MODELS}) == len(MODELS)
        assert model.config.depth == 1 and "params" in variables


def test_strides_are_near_the_root():
    assert [find_stride(n) for n in list_lengths(16_384)] == [24, 32, 48, 64, 88, 128]


def test_a_row_in_segments_takes_as_much_memory_as_a_segment(monkeypatch):
    spec = next(spec for spec in MODELS if spec.in_segments)
    monkeypatch.setattr(long_rows, "MODELS", (spec,))
    monkeypatch.setattr(long_rows, "PASSES", ("forward",))
    measures = measure_lengths((512, 1_024), 1, 2.0**30, 60.0)
    for length in (512, 1_024):
        assert long_rows.compile_program(spec, length, "forward").num_calls == length // 512
    assert len(set(measures["memory", "forward"][spec.name].values())) == 1
    assert min(measures["time", "forward"][spec.name].values()) > 0
    for most_bytes, most_seconds in ((1.0, 60.0), (2.0**30, 1e-6)):  # it needs more
        measures = measure_lengths((512,), 1, most_bytes, most_seconds)
        assert measures["memory", "forward"] and not measures["time", "forward"]


def test_exponents_are_fitted_from_2048():
    found = {512: 9.0, 1_024: 9.0, 2_048: 1.0, 4_096: 4.0, 8_192: 16.0}
    assert fit_exponent(found) == pytest.approx(2.0)
    assert fit_exponent({2_048: 1.0, 4_096: 4.0}) is None


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_claims_are_held_against_the_exponents(exponent):
    lines = format_exponents(make_measures(exponent))[2:]
    assert len(lines) == len(MODELS)
    assert all(f"| {exponent:.2f} | {exponent:.2f} |" in line for line in lines)
    expected = {
        "dense": exponent == 2.0,
        "Linformer": exponent == 1.0,
        "Reformer": exponent == 1.0,
        "Sparse Transformer, fixed": exponent < 1.6,
        "Sparse Transformer, strided": exponent < 1.6,
    }
    for spec, line in zip(MODELS, lines, strict=True):
        answer = {True: "yes", False: "no", None: ""}[expected.get(spec.name)]
        assert line.split(" | ")[-1] == f"{answer} |", line
