"""Trackers get rows, configuration and end state; one that fails or hangs never stops a run."""

import importlib.util
import json
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from pretrain.__main__ import main
from pretrain.config import load
from pretrain.mesh.sharding import make_mesh
from pretrain.processes.stragglers import StragglerMonitor
from pretrain.training import logger, loop
from pretrain.training.monitoring.background import BackgroundTracker
from pretrain.training.monitoring.options import Monitoring
from pretrain.workdir.leases.lease import Lease
from pretrain.workdir.metrics_file import read_metrics

SHORT = ["train.stop_at_step=4", "evaluate.every=2", "checkpoint.every=2"]
# Modules with the calls of wandb and mlflow that are used. They write each call to a file, and fail
# or hang where a variable says so.
CALLS = """
import json, os, time
def note(call, **values):
    with open(os.environ["STANDIN_CALLS"], "a") as file:
        file.write(json.dumps({"call": call, **values}) + "\\n")
    if os.environ.get("STANDIN_RAISES") == call:
        raise RuntimeError(f"no {call} today\\nsecond line")
    while os.environ.get("STANDIN_HANGS") == call:
        time.sleep(0.02)
"""
WANDB = """
from standin_calls import note
class Settings:
    def __init__(self, **options): pass
class Run:
    def __init__(self, id): self.id, self.summary = id, {}
    def log(self, values, step): note("log", step=step, values=values)
    def mark_preempting(self): note("preempting")
    def finish(self, exit_code): note("finish", code=exit_code, **self.summary)
def init(project, id, name, config, dir, resume, allow_val_change, settings):
    note("start", id=id, name=name, config=config, resume=resume, dir=dir)
    return Run(id)
"""
MLFLOW = """
from types import SimpleNamespace as Record
from standin_calls import note
class MlflowClient:
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return "7"
    def create_run(self, experiment_id, run_name):
        note("start", id=None, name=run_name)
        return Record(info=Record(run_id="f00d"))
    def update_run(self, run_id, status): note("start", id=run_id, status=status)
    def log_batch(self, run_id, metrics=(), params=()):
        if params: note("params", config=dict(params))
        for key, value, _, step in metrics: note("log", step=step, values={key: value})
    def set_tag(self, run_id, key, value): note("tag", **{key: value})
    def set_terminated(self, run_id, status): note("finish", id=run_id, status=status)
"""
ENTITIES = "Param = lambda key, value: (key, value)\nMetric = lambda *values: values\n"


@pytest.fixture
def standins(tmp_path, monkeypatch):
    """Return a function that reads the calls so far."""
    folder, calls = tmp_path / "modules", tmp_path / "calls.jsonl"
    (folder / "mlflow").mkdir(parents=True)
    (folder / "standin_calls.py").write_text(CALLS)
    (folder / "wandb.py").write_text(WANDB)
    (folder / "mlflow" / "__init__.py").write_text(MLFLOW)
    (folder / "mlflow" / "entities.py").write_text(ENTITIES)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("STANDIN_CALLS", str(calls))
    names = ("standin_calls", "wandb", "mlflow", "mlflow.entities")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield lambda: [json.loads(line) for line in calls.read_text().splitlines()]
    monkeypatch.delenv("STANDIN_HANGS", raising=False)
    for thread in threading.enumerate():  # those left over, which would fail in a later test
        if thread.name in names:
            thread.join(30)
            assert not thread.is_alive()
    for name in names:
        sys.modules.pop(name, None)


def train_tracked(configs, workdir, tracker, *words):
    command = ["train", str(configs["bert"]), "--workdir", str(workdir), "--tracker", tracker]
    return main([*command, *SHORT, *words])


def select_calls(calls, name):
    return [call for call in calls if call["call"] == name]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_a_resumed_run_continues_the_tracker_s_run(configs, tmp_path, standins, tracker):
    workdir = tmp_path / "run"
    assert train_tracked(configs, workdir, tracker) == 0
    assert train_tracked(configs, workdir, tracker, "train.stop_at_step=5") == 0
    calls = standins()
    run_id = json.loads((workdir / "tracker.json").read_text())[tracker]
    first, second = select_calls(calls, "start")
    assert second["id"] == run_id and first["name"] == "run"
    config = select_calls(calls, "params")[0]["config"] if tracker == "mlflow" else first["config"]
    assert str(config["optimizer.learning_rate"]) == "0.01"
    logged = {}
    for call in select_calls(calls, "log"):
        logged.setdefault(call["step"], {}).update(call["values"])
    rows = {row.pop("step"): row for row in read_metrics(workdir / "metrics.jsonl")}
    assert logged == rows and "heldout_loss" in logged[4]
    ends = select_calls(calls, "finish")
    if tracker == "wandb":
        assert [(end["code"], end["end_state"]) for end in ends] == [(0, "finished")] * 2
    else:
        assert [end["status"] for end in ends] == ["FINISHED"] * 2


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("state", "code", "status"), [("failed", 1, "FAILED"), ("preempted", 1, "KILLED")]
)
def test_the_end_state_is_the_run_s(configs, tmp_path, standins, monkeypatch, state, code, status):
    def stop(context, train_state, preemption):
        if state == "failed":
            raise ValueError("a step went wrong")
        preemption.signal = 15
        return 2

    monkeypatch.setattr(loop, "run_steps", stop)
    for tracker in ("wandb", "mlflow"):
        assert train_tracked(configs, tmp_path / tracker, tracker) == (
            2 if state == "failed" else 143
        )
    one, other = select_calls(standins(), "finish")
    assert (one["code"], one["end_state"], other["status"]) == (code, state, status)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("call", ["start", "log", "finish"])
def test_a_tracker_that_raises_is_reported_once(
    configs, tmp_path, standins, monkeypatch, capsys, call
):
    monkeypatch.setenv("STANDIN_RAISES", call)
    assert train_tracked(configs, tmp_path / "run", "wandb") == 0
    error = capsys.readouterr().err
    assert error.count(f"wandb failed, the run continues: no {call} today\n") == 1
    assert "second line" not in error
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3, 4]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("call", ["start", "log", "finish"])
def test_a_tracker_that_hangs_is_left_behind(
    configs, tmp_path, standins, monkeypatch, capsys, call
):
    monkeypatch.setenv("STANDIN_HANGS", call)
    monkeypatch.setattr(BackgroundTracker.__init__, "__defaults__", (2, 0.5))
    began = time.monotonic()
    assert train_tracked(configs, tmp_path / "run", "wandb") == 0
    assert time.monotonic() - began < 45
    error = capsys.readouterr().err
    assert error.count("wandb has not answered for 0.5 s and is abandoned") == 1
    if call == "start":  # The queue of two rows fills.
        assert error.count("wandb does not keep up: rows are missing there from step 3 on") == 1
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3, 4]


def test_failures_are_counted(tmp_path, standins, monkeypatch):
    class Broken:
        def choose_id(self):
            return "a1"

        def start(self, *args):
            return "a1"

        def log_rows(self, rows):
            raise KeyError("gone")

        def finish(self, state):
            raise SystemExit(3)

    messages = []
    tracker = BackgroundTracker("wandb", Broken(), tmp_path, {}, messages.append)
    for step in (1, 2):
        tracker.write_row({"step": step, "loss": 1.0})
        time.sleep(0.3)
    tracker.close("finished")
    assert messages == [
        "wandb failed, the run continues: 'gone'",
        "wandb: 3 calls failed, 0 rows were dropped; metrics.jsonl has all of them",
    ]


@pytest.mark.more
def test_a_damaged_id_begins_no_second_run(configs, tmp_path, standins, capsys):
    workdir = tmp_path / "run"
    assert train_tracked(configs, workdir, "wandb") == 0
    (workdir / "tracker.json").write_text('{"wandb": "../../x"}')
    assert train_tracked(configs, workdir, "wandb", "train.stop_at_step=5") == 0
    error = capsys.readouterr().err
    assert "wandb failed, the run continues" in error and "tracker.json is damaged" in error
    assert len(select_calls(standins(), "start")) == 1


def test_only_the_first_process_tracks(configs, tmp_path, standins, monkeypatch):
    run, stragglers, lease = load(str(configs["bert"])), StragglerMonitor(), Mock(spec=Lease)
    monkeypatch.setattr(logger.jax, "process_index", lambda: 1)
    mesh, watched = make_mesh(run.mesh), Monitoring(tracker="wandb")
    with logger.RunLog(run, tmp_path, mesh, 0, stragglers, lease, watched) as log:
        assert log.sinks == []
    assert not (tmp_path / "calls.jsonl").exists()


@pytest.fixture
def finetune_command(tmp_path):
    """Return the words that fine-tune a new DAN for four steps with each of two seeds."""
    file, workdir = tmp_path / "train.jsonl", tmp_path / "run"
    rows = [{"text": f"a {n} fox", "label": "even" if n % 2 == 0 else "odd"} for n in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["finetune", "--config", "dan", "--task", "classification", "--train", str(file)]
    words += ["--workdir", str(workdir), "--seeds", "2", "data.batch_size=8", "train.seed=3"]
    small = ["model.encoder.width=4", "model.encoder.hidden=4", "data.threads=1"]
    return [*words, *small, "train.steps=4"]


@pytest.mark.more
def test_each_seed_of_finetune_is_watched(finetune_command, tmp_path, standins):
    watched = ["--tracker", "wandb", "--prometheus", str(tmp_path / "mine.prom")]
    assert main([*finetune_command, *watched, "--profile", "3:4"]) == 0
    starts = select_calls(standins(), "start")
    assert [start["config"]["train.seed"] for start in starts] == [3, 4]
    assert len({start["id"] for start in starts}) == 2
    for seed in (3, 4):
        workdir = tmp_path / "run" / f"seed-{seed}"
        assert (workdir / "profile" / "steps-3-4" / "operations.md").is_file()
        text = (tmp_path / f"mine-seed-{seed}.prom").read_text()
        loss = read_metrics(workdir / "metrics.jsonl")[-1]["loss"]
        assert f'cloze_loss{{workdir="{workdir}"}} {loss!r}\n' in text
    assert [*tmp_path.glob("*.prom")] == [*tmp_path.glob("mine-seed-?.prom")]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "3:5"], "--profile 3:5: the run ends after step 4"),
        (["--profile", "last"], "--profile last: expected two steps FIRST:LAST"),
        (["--prometheus", "metrics.txt"], "--prometheus metrics.txt: expected a file NAME.prom"),
    ],
)
def test_finetune_refuses_flags_before_it_writes(
    finetune_command, tmp_path, capsys, words, message
):
    assert main([*finetune_command, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_an_error_before_anything_is_written(
    configs, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert train_tracked(configs, tmp_path / "run", "wandb") == 2
    assert (
        "--tracker wandb: the package wandb of Weights & Biases is missing"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_the_real_wandb_offline(configs, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert train_tracked(configs, tmp_path / "run", "wandb") == 0
    run_id = json.loads((tmp_path / "run" / "tracker.json").read_text())["wandb"]
    assert list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))


def test_the_real_mlflow_in_a_folder(configs, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for step in (4, 5):
        assert train_tracked(configs, tmp_path / "run", "mlflow", f"train.stop_at_step={step}") == 0
    run_id = json.loads((tmp_path / "run" / "tracker.json").read_text())["mlflow"]
    run = MlflowClient().get_run(run_id)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    history = MlflowClient().get_metric_history(run_id, "loss")
    assert [(item.step, item.value) for item in history] == [(r["step"], r["loss"]) for r in rows]
    assert run.info.status == "FINISHED" and run.data.params["optimizer.learning_rate"] == "0.01"
