"""Each growth curve measures one model and varies one size at a time."""

import numpy as np
import pytest

from benchmarks.speed import growth
from benchmarks.speed.growth import (
    SWEEPS,
    TINY,
    draw_curves,
    format_table,
    list_points,
    make_config,
    make_curves,
    measure_points,
)


def test_one_number_takes_other_values():
    asked = list_points(6)
    assert {sweep for sweep, _ in asked} == set(SWEEPS)
    for (sweep, value), point in asked.items():
        name, scanned = sweep.removesuffix(", unrolled"), "unrolled" not in sweep
        assert point == TINY | {name: value, "scan": scanned}
        run = make_config(point)
        assert (run.model.depth, run.model.width, run.model.scan) == (
            point["depth"],
            point["width"],
            scanned,
        )
        assert (run.data.batch_size, run.data.objective.length, run.model.length) == (
            point["batch"],
            point["length"],
            point["length"],
        )


def test_the_table_has_the_exponents_and_the_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    grown = {at: np.array([0.001 * at[1] ** 2, 3.0]) for at in list_points(3)}
    split = make_curves(grown)
    lines = format_table(split)[2:]
    assert len(lines) == len(grown)
    assert (
        lines[0] == "| depth | 1 | 1.0 |  | 3.0 |  |"
        and lines[2] == "| depth | 4 | 16.0 | 2.00 | 3.0 | 0.00 |"
    )
    draw_curves(split, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_a_point_of_several_curves_is_measured_once_a_round(monkeypatch):
    times = iter(range(1, 1000))
    monkeypatch.setattr(
        growth,
        "measure_in_process",
        lambda point, steps: {"step": next(times), "compile": 5.0, "version": "0"},
    )
    found, version = measure_points(list_points(6), rounds=3, steps=1)
    different = next(times) // 3
    assert (
        different == len({str(sorted(point.items())) for point in list_points(6).values()}) == 26
        and version == "0"
    )
    assert found["depth", 2].tolist() == found["width", 128].tolist() == [2 + different, 5.0]
