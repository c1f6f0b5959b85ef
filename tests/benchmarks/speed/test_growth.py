"""Each growth curve measures one model and varies one size at a time."""

from benchmarks.speed import growth
from benchmarks.speed.growth import (
    SWEEPS,
    TINY,
    list_points,
    make_config,
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
