"""Early stopping: which evaluations count, where a run ends, and that an interrupted run ends at
the same step.
"""

import math

import pytest

from pretrain.__main__ import main
from pretrain.config import load, override_run, validate_run
from pretrain.settings.overrides import ConfigError
from pretrain.training.early_stopping import EarlyStopping
from pretrain.workdir.checkpoints import Checkpoints


def note_values(name, values, patience=2):
    stopping, exhausted = EarlyStopping(patience, name, {}), []
    for step, value in enumerate(values, 1):
        stopping.note_scores(step, {name: value})
        exhausted.append(stopping.is_exhausted)
    return stopping, exhausted


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "values", "best", "best_step"),
    [
        ("loss", [3.0, 2.0, 2.5, 2.25], 2.0, 2),
        (
            "loss",
            [3.0, 2.0, 2.5, 2.0],
            2.0,
            4,
        ),  # of equal scores the newest, which is not an improvement
        ("f1", [0.1, 0.5, 0.4, 0.25], 0.5, 2),
        ("ema/loss", [3.0, 2.0, 2.5, 2.25], 2.0, 2),
        ("ema/f1", [0.1, 0.5, 0.4, 0.25], 0.5, 2),
        ("loss", [math.nan, 4.0, math.inf, math.nan], 4.0, 2),
    ],
)
def test_a_run_ends_after_evaluations_without_a_better_score(name, values, best, best_step):
    stopping, exhausted = note_values(name, values)
    assert exhausted == [False, False, False, True]
    assert (stopping.best, stopping.best_step) == (best, best_step)
    assert f"best is {best:g} at step {best_step}" in stopping.describe_stop()


@pytest.mark.fast
def test_scores_that_are_never_finite_end_a_run():
    stopping, exhausted = note_values("loss", [math.nan] * 2)
    assert exhausted == [False, True] and "it was never finite" in stopping.describe_stop()


@pytest.mark.fast
def test_patience_0_never_stops_and_another_score_resets_the_counts():
    assert not any(note_values("loss", [1.0, 2.0, 3.0, 4.0], patience=0)[1])
    stopping, _ = note_values("loss", [1.0, 2.0, 3.0])
    assert EarlyStopping(3, "loss", stopping.make_record()).evaluations == 2
    assert EarlyStopping(2, "loss", stopping.make_record()).is_exhausted
    assert not EarlyStopping(2, "f1", stopping.make_record()).is_exhausted
    EarlyStopping(0, "", {}).note_scores(1, {"loss": 1.0})


@pytest.mark.fast
def test_patience_needs_a_score(configs):
    run = load(str(configs["bert"]))
    with pytest.raises(ConfigError, match=r"evaluate\.patience=2 needs .* set checkpoint\.best"):
        validate_run(override_run(run, ["evaluate.patience=2"]))
    between = ["evaluate.patience=2", "checkpoint.best=loss", "checkpoint.every=4"]
    with pytest.raises(
        ConfigError, match=r"evaluate\.every=6 to a multiple of checkpoint\.every=4"
    ):
        validate_run(override_run(run, between))


def test_an_interrupted_run_stops_early_at_the_same_step(configs, tmp_path, capsys):
    """With a learning rate of 0 no evaluation is better than the first, at step 2: the run ends at
    step 6.
    """
    overrides = ["optimizer.learning_rate=0", "evaluate.every=2", "evaluate.patience=2"]
    overrides += ["checkpoint.best=loss", "checkpoint.every=2", "checkpoint.keep=1"]
    records = {}
    for name, stops in (("whole", []), ("stopped", [3])):
        train = ["train", str(configs["bert"]), "--workdir", str(tmp_path / name), *overrides]
        for stop in stops:  # an evaluation there does not count
            assert main([*train, f"train.stop_at_step={stop}"]) == 0
        capsys.readouterr()
        assert main(train) == 0
        captured = capsys.readouterr()
        assert "stopped early: the held-out loss has not improved in 2" in captured.err
        assert "at step 6, which checkpoint.best keeps" in captured.err
        with Checkpoints(tmp_path / name, read_only=True) as checkpoints:
            assert checkpoints.list_steps() == [6]
            records[name] = checkpoints.load_record(6)["stopping"]
    assert records["whole"] == records["stopped"]
    assert main(train) == 0
    captured = capsys.readouterr()
    assert "step 6 is the last: stopped early" in captured.out and "continuing" not in captured.err
    assert main([*train, "evaluate.patience=3"]) == 0
    with Checkpoints(tmp_path / "stopped", read_only=True) as checkpoints:
        assert checkpoints.list_steps()[0] == 8


@pytest.mark.more
def test_skipped_steps_do_not_count_as_evaluations(configs, tmp_path, capsys):
    """A run that diverges at once ends as diverged, though no evaluation is better than the first."""
    overrides = ["optimizer.learning_rate=1e30", "optimizer.warmup_steps=0", "guard.patience=5"]
    overrides += [
        "evaluate.every=2",
        "evaluate.patience=1",
        "checkpoint.every=2",
        "checkpoint.best=loss",
    ]
    status = main(["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *overrides])
    errors = capsys.readouterr().err
    assert status == 1 and "were skipped" in errors and "stopped early" not in errors
