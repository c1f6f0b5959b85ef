"""The summary of a fine-tuning has the scores that the best checkpoints have."""

import json

import pytest

from pretrain.finetune import seed_summary

pytestmark = pytest.mark.fast


def test_a_metric_that_a_resumed_run_adds_may_not_be_measured(tmp_path, monkeypatch):
    """The best checkpoint may be older than the command that names the metric."""
    outcomes = {
        "w/seed-0": (3, {"accuracy": 0.5}),
        "w/seed-1": (9, {"accuracy": 0.7, "macro_f1": 0.6}),
    }
    monkeypatch.setattr(
        seed_summary, "find_best_checkpoint", lambda workdir, name: outcomes[workdir]
    )
    metrics = ("accuracy", "macro_f1")
    lines = seed_summary.format_seed_summary(str(tmp_path), [*outcomes], metrics).splitlines()
    assert lines[0].endswith("at step 3, held out: accuracy 0.5000, macro_f1 not measured")
    assert lines[1].endswith("at step 9, held out: accuracy 0.7000, macro_f1 0.6000")
    assert lines[2] == "2 seeds: accuracy 0.6000 (spread 0.1414)"
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["runs"] == {
        "w/seed-0": {"step": 3, "accuracy": 0.5},
        "w/seed-1": {"step": 9, "accuracy": 0.7, "macro_f1": 0.6},
    }
    assert scores["mean"] == {"accuracy": pytest.approx(0.6)}


def test_the_best_by_the_average_is_used_as_the_average(tmp_path, monkeypatch):
    outcomes = {"a": (3, {"ema/loss": 0.5, "loss": 0.6}), "b": (9, {"ema/loss": 0.4, "loss": 0.7})}
    monkeypatch.setattr(
        seed_summary, "find_best_checkpoint", lambda workdir, name: outcomes[workdir]
    )
    text = seed_summary.format_seed_summary(str(tmp_path), [*outcomes], ["ema/loss", "loss"])
    assert "b: best by ema/loss at step 9, held out: ema/loss 0.4000, loss 0.7000\n" in text
    assert "export --workdir b --step 9 --parameters ema --output FOLDER" in text
