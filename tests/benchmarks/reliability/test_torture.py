"""The schedules of the torture are functions of their seeds, and its verdicts find what is wrong."""

import pathlib
import random
import signal

import numpy as np
import pytest

from benchmarks.reliability import torture_damage as damage
from benchmarks.reliability import torture_faults as faults
from benchmarks.reliability import torture_schedule as plan
from benchmarks.reliability import torture_verdict as verdict
from benchmarks.reliability.torture_run import Failed, TorturedRun
from benchmarks.reliability.torture_schedule import Fault, draw_schedule, draw_soak, judge_ending

pytestmark = pytest.mark.fast


def test_a_seed_gives_its_schedule_again_and_another_seed_another():
    assert draw_schedule(7) == draw_schedule(7) != draw_schedule(8)
    assert draw_soak(7) == draw_soak(7) != draw_soak(8)


def test_the_schedules_of_a_campaign_have_every_kind_model_and_change():
    schedules = [draw_schedule(seed) for seed in range(1, 61)]
    every = [fault for schedule in schedules for fault in schedule.faults]
    assert {fault.kind for fault in every} == {*plan.INSIDE, *plan.OUTSIDE, *plan.DAMAGES}
    assert {schedule.model for schedule in schedules} == set(plan.MODELS)
    assert {schedule.change for schedule in schedules} == set(plan.CHANGES)
    for schedule in schedules:
        _, devices, batch_sizes = plan.CHANGES[schedule.change]
        assert len(schedule.faults) == plan.NUM_FAULTS
        assert {fault.devices for fault in schedule.faults} <= set(devices)
        assert {fault.batch_size for fault in schedule.faults} <= set(batch_sizes)
        assert all(fault.batch_size % fault.devices == 0 for fault in schedule.faults)


def test_a_soak_has_each_fault_and_two_checkpoints_before_it_damages_one():
    for seed in range(20):
        first, *rest = draw_soak(seed).faults
        assert (first.kind, first.ahead) == ("term", 2 * plan.SAVE_EVERY + 1)
        assert len(rest) == 9 and {fault.kind for fault in rest} == {*plan.INSIDE, "checkpoint"}


def test_every_kind_of_fault_can_be_carried_out():
    signals = {kind for kind in plan.OUTSIDE if hasattr(signal, kind)}
    assert set(faults.METHODS) | signals == set(plan.OUTSIDE)
    assert set(plan.EXPLAINED) <= {*plan.INSIDE, *plan.OUTSIDE}


@pytest.mark.parametrize(
    ("moment", "newest", "step"),
    [("step", 8, 10), ("data", 9, 11), ("save", 8, 12), ("save", 9, 12), ("evaluate", 8, 16)],
)
def test_a_moment_comes_in_a_step_that_has_it(moment, newest, step):
    assert Fault("kill", moment, 2).locate_step(newest) == step


@pytest.mark.parametrize(
    ("kind", "status", "errors", "finished", "problem"),
    [
        ("kill", -9, "", False, ""),
        ("kill", 0, "", True, ""),
        ("kill", 0, "", False, "status 0 before the last step"),
        ("kill", 1, "", False, "status 1"),
        ("SIGKILL", -11, "", False, "status -11"),
        ("term", 143, "Traceback (most recent call last)", False, "a traceback"),
        ("SIGINT", 1, "Traceback (most recent call last)\nKeyboardInterrupt", False, ""),
        ("SIGTERM", 1, "Traceback (most recent call last)\nKeyboardInterrupt", False, "status 1"),
        ("disk filled", 2, "error: x: No space left on device", False, ""),
        ("disk filled", 2, "error: x: Input/output error", False, "says none of No space left"),
        ("disk filled", 2, "", False, "0 error lines"),
        ("store damaged", 2, "error: a\nerror: b", False, "2 error lines"),
    ],
)
def test_an_ending_is_judged_by_its_fault(kind, status, errors, finished, problem):
    found = judge_ending(kind, status, errors, finished)
    assert problem in found and bool(found) == bool(problem)


def make_records(*lines):
    return [{"process": process, "step": step, "rows": rows} for process, step, rows in lines]


def test_a_step_that_was_repeated_counts_as_it_was_done_last():
    records = make_records((1, 1, ["a"]), (1, 2, ["b"]), (2, 2, ["b", "c"]), (2, 3, ["d"]))
    assert verdict.order_rows(records, 3) == (["a", "b", "c", "d"], "")


def test_a_missing_step_and_two_that_train_at_once_are_found():
    assert "steps [2]" in verdict.order_rows(make_records((1, 1, ["a"]), (1, 3, ["b"])), 3)[1]
    records = make_records((1, 1, ["a"]), (2, 1, ["a"]), (1, 2, ["b"]))
    assert "process 1 went on" in verdict.order_rows(records, 2)[1]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [("abc", ""), ("abd", "row 2"), ("aabc", "row 1"), ("ac", "row 1"), ("abcdxy", "6 rows")],
)
def test_rows_that_are_read_twice_skipped_or_unknown_are_found(rows, problem):
    found = verdict.compare_rows(rows, "abcdx" if problem.startswith("6") else "abcd")
    assert problem in found and bool(found) == bool(problem)


def test_lines_of_metrics_may_be_missing_only_where_they_were_damaged():
    whole = [{"step": step, "loss": 1.0 / step} for step in (1, 2, 3)]
    compare = verdict.compare_metrics
    assert compare(whole, whole, set()) == "" == compare(whole[:2], whole, {3})
    assert "lacks the steps [3]" in compare(whole[:2], whole, {2})
    assert "twice" in compare([*whole, whole[2]], whole, set())
    assert "steps [3] too many" in compare(whole, whole[:2], set())
    other = [*whole[:2], {"step": 3, "loss": 0.5}]
    assert "metrics of step 3" in compare(other, whole, set())
    assert compare(other, whole, set(), only_steps=True) == ""


def test_the_largest_difference_of_a_parameter_is_found():
    one = {"a": {"kernel": np.array([1.0, 4.0])}, "b": np.array([0.0])}
    other = {"a": {"kernel": np.array([1.2, 4.0])}, "b": np.array([0.0])}
    assert verdict.measure_difference(one, one) == 0
    assert verdict.measure_difference(other, one) == pytest.approx(0.2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_parameter_that_is_not_finite_is_no_small_difference(value):
    one = {"a": {"kernel": np.array([1.0, value])}, "b": np.array([0.0])}
    other = {"a": {"kernel": np.array([1.0, 4.0])}, "b": np.array([0.0])}
    for pair in ((one, other), (other, one), (one, one)):
        assert not verdict.measure_difference(*pair) <= verdict.TOLERANCE


@pytest.mark.parametrize("hurt", damage.DAMAGES)
def test_damage_is_a_function_of_the_seed_and_changes_the_file(hurt, tmp_path):
    path, results = tmp_path / "file", []
    for _ in range(2):
        path.write_bytes(bytes(range(256)) * 8)
        hurt(path, random.Random(3))
        results.append(path.read_bytes() if path.exists() else None)
    assert results[0] == results[1] != bytes(range(256)) * 8


def test_a_checkpoint_that_is_lost_fails_the_run(tmp_path, monkeypatch):
    run = TorturedRun(pathlib.Path("config.json"), tmp_path, tmp_path / "notes")
    saved = run.workdir / "checkpoints"
    for step in ("4", "8"):
        (saved / step).mkdir(parents=True)
        (saved / step / "file").write_bytes(b"0123456789")

    def lose_newest(run, fault):
        (saved / "8").rename(tmp_path / "gone")
        return "status -9"

    monkeypatch.setattr(faults, "send_signal", lose_newest)
    with pytest.raises(Failed, match="newest checkpoint was 8 and is 4"):
        faults.befall_run(run, Fault("SIGKILL"))
    (tmp_path / "gone").rename(saved / "8")
    # After damage it may be set aside; with a single checkpoint nothing is damaged.
    faults.befall_run(run, Fault("checkpoint", seed=1))
    faults.befall_run(run, Fault("SIGKILL"))
    faults.befall_run(run, Fault("checkpoint", seed=1))
    assert run.counts == {"SIGKILL": 2, "checkpoint": 1} and not run.is_newest_damaged
