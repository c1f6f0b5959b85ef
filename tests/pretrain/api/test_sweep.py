"""A sweep trains its members, goes on when one fails, resumes, and compares what there is."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pretrain import api
from pretrain.__main__ import main
from pretrain.api import sweeping
from pretrain.config import load
from pretrain.reporting.sweep_table import read_outcome
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.workdir import Workdir
from tests.faults.conftest import write_tiny_store

pytestmark = pytest.mark.slow

SMALL = [
    *("model.width=16", "model.depth=1", "model.num_heads=2", "model.mlp=16", "model.length=16"),
    *("data.objective.length=16", "data.batch_size=8", "train.steps=4", "evaluate.every=2"),
    *("evaluate.samples=0", "checkpoint.every=2", "optimizer.warmup_steps=1"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the folder of a small store."""
    folder = tmp_path_factory.mktemp("sweep") / "store"
    write_tiny_store(folder, "bert", 40)
    return folder


def override(words, *others):
    """Return the words without those whose paths are among the others, and the others."""
    paths = {word.partition("=")[0] for word in others}
    return [*(word for word in words if word.partition("=")[0] not in paths), *others]


def sweep(store, folder, *words):
    """Run the verb on a small configuration; return its exit status."""
    return main(
        ["sweep", "bert_tiny", "--folder", str(folder), f"data.store={store}", *SMALL, *words]
    )


def test_a_member_that_fails_stops_no_other(store, tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = ["train.attention=splash,plain"]  # splash needs a TPU
    assert sweep(store, folder, *words, "--jobs", "2") == 1
    shown = capsys.readouterr()
    assert "error: attention=splash failed: train.attention=splash" in shown.err
    assert ["member", "loss", "step", "seconds", "state"] in map(str.split, shown.out.splitlines())
    assert shown.out.splitlines()[-1] == f"best by loss: {folder / 'attention=plain'}"
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["best"] == "attention=plain"
    assert scores["members"]["attention=splash"]["state"] == "failed: exit status 2"
    loss = scores["members"]["attention=plain"]["scores"]["loss"]
    assert loss == api.evaluate(folder / "attention=plain")["loss"]
    assert (folder / "report/report.html").exists()


@pytest.mark.more
def test_the_best_is_exported_and_a_finished_member_is_not_trained_again(store, tmp_path, capsys):
    folder = tmp_path / "sweep"
    assert sweep(store, folder, "optimizer.learning_rate=1e-3,1e-1") == 0
    rows = [
        Workdir.open(folder / f"learning_rate={rate}").read_metrics() for rate in ("1e-3", "1e-1")
    ]
    run = Workdir.open(folder / "learning_rate=1e-1").run
    expected = [f"data.store={store}", *SMALL, "optimizer.learning_rate=1e-1"]
    assert run == load("bert_tiny", override(expected, "model.vocab=40"))
    words = ["optimizer.learning_rate=1e-3,1e-1", "train.seed=0", "--jobs", "0"]
    assert sweep(store, folder, *words, "--export", str(tmp_path / "best")) == 0
    assert (tmp_path / "best/model.safetensors").exists()
    scores = json.loads((folder / "scores.json").read_text())
    losses = {name: each["scores"]["loss"] for name, each in scores["members"].items()}
    assert list(losses.values()) == sorted(losses.values()) and scores["best"] == next(iter(losses))
    with pytest.raises(ConfigError, match="has the member learning_rate=1e-1"):
        api.sweep("bert_tiny", folder, [*expected[:-1], "optimizer.learning_rate=1e-3,1e-4"])
    assert sweep(store, folder, "optimizer.learning_rate=1e-3,1e-1") == 0
    assert rows == [
        Workdir.open(folder / f"learning_rate={rate}").read_metrics() for rate in ("1e-3", "1e-1")
    ]


@pytest.mark.more
def test_a_member_that_stopped_early_is_finished(store, tmp_path, capsys):
    """Both stop at the first worse score; the best step is one that was saved."""
    folder = tmp_path / "sweep"
    words = [
        *("train.steps=60", "evaluate.every=2", "evaluate.patience=1", "checkpoint.best=loss"),
        "optimizer.learning_rate=1e-2,1e1",
    ]
    trained = [f"data.store={store}", *override(SMALL, *words)]
    argv = ["sweep", "bert_tiny", "--folder", str(folder), *trained]
    assert main([*argv, "--jobs", "2"]) == 0
    bad = Workdir.open(folder / "learning_rate=1e1")
    assert bad.read_metrics()[-1]["step"] < 60
    capsys.readouterr()
    assert main([*argv, "--jobs", "0", "--export", str(tmp_path / "best")]) == 0
    shown = capsys.readouterr().out
    states = {line.split()[0]: line.split()[-1] for line in shown.splitlines()[1:3]}
    assert states == {"learning_rate=1e-2": "finished", "learning_rate=1e1": "finished"}
    assert (tmp_path / "best/model.safetensors").exists()


def test_a_full_disk_costs_no_table(store, tmp_path, monkeypatch, capsys):
    for seed, loss in enumerate((3.0, 2.0)):
        (tmp_path / f"seed={seed}").mkdir()
        row = {"step": 4, "heldout_loss": loss}
        (tmp_path / f"seed={seed}/metrics.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "sweep.json").write_text("{}")

    def fill_disk(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(sweeping, "write_atomically", fill_disk)
    assert sweep(store, tmp_path, "train.seed=0,1", "--jobs", "0") == 2
    shown = capsys.readouterr()
    assert "No space left on device" in shown.err
    rows = [line.split()[:2] for line in shown.out.splitlines()[1:3]]
    assert rows == [["seed=1", "2.0000"], ["seed=0", "3.0000"]]
    assert shown.out.splitlines()[-1] == f"best by loss: {tmp_path / 'seed=1'}"


def test_the_best_step_was_saved(tmp_path):
    """Of a run that keeps its best checkpoint, scores between two checkpoints do not count."""
    losses = {5: 1.0, 10: 3.0, 15: 2.0, 20: 2.5}
    rows = [{"step": step, "heldout_loss": loss} for step, loss in losses.items()]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in (10, 20):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    outcome = read_outcome(str(tmp_path), "finished", "loss", keeps_best=True)
    assert (outcome.scored_step, outcome.scores) == (20, {"loss": 2.5})


def test_the_best_by_the_average_is_exported_as_the_average(tmp_path, monkeypatch):
    for seed, losses in enumerate(((1.0, 3.0), (2.0, 2.5))):
        (tmp_path / f"seed={seed}").mkdir()
        row = {"step": 4} | dict(zip(("heldout_loss", "heldout_ema/loss"), losses, strict=True))
        (tmp_path / f"seed={seed}/metrics.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "sweep.json").write_text("{}")
    exported = []
    monkeypatch.setattr(
        "pretrain.api.exporting.export", lambda *args, **options: exported.append((args, options))
    )
    average = ["train.ema_decay=0.9", "evaluate.ema=true", "train.steps=4"]
    words = ["bert_tiny", str(tmp_path), [*average, "train.seed=0,1"]]
    for metric in ("loss", "ema/loss"):
        options = sweeping.SweepOptions(*words, jobs=0, metric=metric, export="hf")
        sweeping.export_best(options, sweeping.run_sweep(options))
    (raw, raw_options), (ema, ema_options) = exported
    assert (raw[0], raw_options["parameters"]) == (str(tmp_path / "seed=0"), "raw")
    assert (ema[0], ema_options["parameters"]) == (str(tmp_path / "seed=1"), "ema")


@pytest.mark.more
def test_a_stopped_sweep_resumes(store, tmp_path, root):
    folder = tmp_path / "sweep"
    words = [
        *("sweep", "bert_tiny", "--folder", str(folder), f"data.store={store}"),
        *override(
            SMALL,
            "train.seed=0,1",
            "train.steps=4000",
            "checkpoint.every=4000",
            "evaluate.every=4000",
        ),
    ]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-m", "pretrain", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        metrics = folder / "seed=0/metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert process.poll() is None
            time.sleep(0.1)
        refused = main(words)
        process.send_signal(signal.SIGTERM)
        out = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGTERM, out
    assert refused == 2  # the lease
    assert "the same command resumes the sweep" in out
    saved = Workdir.open(folder / "seed=0").list_steps()
    assert saved and 0 < saved[0] < 4000
    assert not (folder / "seed=1").exists()
    result = api.sweep("bert_tiny", folder, words[4:], jobs=0)
    states = {name: each.state for name, each in result.outcomes.items()}
    assert states["seed=1"] == "not begun"
    assert states["seed=0"] == f"at step {saved[0]:,} of 4,000"
    assert result.best is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimizer.learning_rat=1e-3,1e-4"], "did you mean 'learning_rate'"),
        (["optimizer.learning_rate=1e-3,abc"], "optimizer.learning_rate"),
        (["optimizer.learning_rate=1e-3,0.001"], "are the same run"),
        (["evaluate.every=0,2"], "evaluate.every is 0"),
        (["train.seed=0,1", "--metric", "f1"], "--metric f1"),
        (
            ["train.seed=0,1", "--metric", "ema/loss"],
            "--metric ema/loss of seed=0 is not measured: set evaluate.ema=true, or choose loss",
        ),
        (["train.seed=0,1", "--jobs", "-1"], "--jobs -1"),
        (["train.seed=0,1", "data.store=/nowhere"], "/nowhere is not a token store"),
        (["train.seed=0,1", "--from", "/nowhere"], "--from: /nowhere"),
        (["train.seed=0,1", "--export", "/usr"], "/usr: exists and is not empty"),
    ],
)
def test_a_wrong_sweep_begins_nothing(store, tmp_path, capsys, words, message):
    folder = tmp_path / "sweep"
    argv = ["sweep", "bert_tiny", "--folder", str(folder)]
    assert main([*argv, *override([f"data.store={store}", *SMALL], *words)]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "members": 3}', "\0" * 9])
def test_a_record_of_something_else_is_refused(store, tmp_path, capsys, content):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "sweep.json").write_text(content)
    assert sweep(store, folder, "train.seed=0,1") == 2
    assert "no record of a sweep" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["sweep.json"]


def test_a_folder_of_something_else_is_refused(store, tmp_path, capsys):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/letter.txt").write_text("dear")
    assert sweep(store, tmp_path / "sweep", "train.seed=0,1") == 2
    assert "holds letter.txt; name another --folder" in capsys.readouterr().err
