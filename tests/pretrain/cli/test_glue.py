"""GLUE's table is the mean of the tasks' means and lists missing tasks; a submission has the
benchmark's format.
"""

import errno
import json
import os
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest

from data.objectives import Classification
from pretrain.__main__ import main
from pretrain.api.glue_submission import FILES, find_texts, format_prediction, write_submission
from pretrain.cli import glue
from pretrain.cli.glue import build_table, format_table

NINE = {
    "cola": {"matthews": 0.5},
    "sst2": {"accuracy": 0.9},
    "mrpc": {"f1": 0.9, "accuracy": 0.8},
    "stsb": {"pearson": 0.8, "spearman": 0.7},
    "qqp": {"f1": 0.7, "accuracy": 0.8},
    "mnli": {"accuracy": 0.6},
    "qnli": {"accuracy": 0.8},
    "rte": {"accuracy": 0.6},
    "wnli": {"accuracy": 0.5},
}


def test_the_average_is_of_tasks_and_a_task_the_mean_of_its_metrics(monkeypatch):
    monkeypatch.setattr(
        glue,
        "score_other_part",
        lambda workdir, step, source: 0.7 if source == "mm.tsv" and step == 7 else None,
    )
    found = {task: {"w": (7, scores)} for task, scores in NINE.items()}
    full = build_table(found, "mm.tsv")
    assert full["missing"] == [] and list(full["tasks"]) == [name for name in FILES if name != "AX"]
    assert full["scores"]["mrpc"] == pytest.approx(85) and full["scores"]["mnli"] == pytest.approx(
        65
    )
    assert full["average"] == pytest.approx((50 + 90 + 85 + 75 + 75 + 65 + 80 + 60 + 50) / 9)
    assert "over all nine tasks" in format_table(full)
    some = build_table(
        {"cola": {"a": (1, {"matthews": 0.4}), "b": (2, {"matthews": 0.6})}, "mnli": found["mnli"]}
    )
    assert some["scores"] == pytest.approx({"cola": 50, "mnli": 60}) and some[
        "average"
    ] == pytest.approx(55)
    assert (
        "over 2 of nine tasks, which is not the GLUE score; missing: SST-2, MRPC, STS-B, QQP, MNLI-mm, QNLI, RTE, WNLI"
        in format_table(some)
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("task", "result", "line"),
    [
        ("cola", {"label": "1"}, "1"),
        ("cola", {"label": "acceptable"}, "1"),
        ("mnli", {"label": "2"}, "contradiction"),
        ("mnli", {"label": "neutral"}, "neutral"),
        ("rte", {"label": "0"}, "entailment"),
        ("wnli", {"label": "entailment"}, "1"),
        ("mrpc", {"label": None}, "0"),
        ("stsb", {"score": 5.31}, "5.000"),
        ("stsb", {"score": -0.2}, "0.000"),
        ("stsb", {"score": 2.3456}, "2.346"),
        ("stsb", {"score": None}, "0.000"),
    ],
)
def test_a_submission_has_the_predictions(task, result, line):
    assert format_prediction(task, result) == line


def test_a_label_that_glue_has_not_is_refused():
    with pytest.raises(
        ValueError, match="predicts the label 'fox'; GLUE's are entailment, not_entailment"
    ):
        format_prediction("rte", {"label": "fox"})
    with pytest.raises(ValueError, match="t:3: expected the columns a,b or c; found 'a', 'd'"):
        find_texts({"a": "x", "d": "y"}, "t:3", [("a", "b"), ("c",)])


def fail_as_on_a_full_disk(path, content):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """Return run_of(task, scores): a folder as `finetune` leaves it, with scores but without
    checkpoints.
    """
    outcomes = {}

    def make_run(name, task, scores):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "origin.json").write_text(
            json.dumps({"folder": "bert", "pretrained_step": 7, "task": task})
        )
        outcomes[str(folder)] = (40, {"loss": 1.0, **scores})
        return str(folder)

    monkeypatch.setattr(
        "pretrain.finetune.seed_summary.find_best_checkpoint",
        lambda workdir, metric: outcomes[workdir],
    )
    monkeypatch.setattr(
        "pretrain.finetune.seed_summary.describe_unfinished",
        lambda workdir: f"note: {workdir} is unfinished" * ("killed" in workdir),
    )
    return make_run


def test_a_run_that_was_killed_is_named(run_of, capsys):
    """Its scores are not final."""
    killed = run_of("killed", "sst2", {"accuracy": 0.7})
    assert main(["glue", killed]) == 0
    assert f"note: {killed} is unfinished" in capsys.readouterr().err


def test_the_verb_reads_runs_and_those_of_seeds(run_of, tmp_path, capsys):
    rte = run_of("rte", "rte", {"accuracy": 0.7})
    seeds = [
        run_of(f"mrpc/seed-{i}", "mrpc", {"f1": f1, "accuracy": 0.8})
        for i, f1 in enumerate((0.8, 0.9))
    ]
    (tmp_path / "mrpc" / "scores.json").write_text(
        json.dumps({"runs": {f"moved/from/seed-{i}": {} for i in range(2)}})
    )
    assert main(["glue", rte, str(tmp_path / "mrpc"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["tasks"]["MRPC"] == pytest.approx({"f1": 85, "accuracy": 80}) and scores[
        "average"
    ] == pytest.approx((70 + 82.5) / 2)
    all_in_one = run_of(
        "all",
        "cola, squad, rte",
        {"mean": 0.4, "cola/matthews": 0.3, "rte/accuracy": 0.6, "squad/span_f1": 0.3},
    )
    assert main(["glue", all_in_one, str(tmp_path / "mrpc"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == pytest.approx(
        {"cola": 30, "rte": 60, "mrpc": 82.5}
    )
    some = run_of("some", "cola, qqp", {"mean": 0.4, "qqp/f1": 0.3, "cola/matthews": 0.3})
    other = run_of("sentiment", "classification", {"accuracy": 1})
    halved = run_of("qqp", "qqp", {"accuracy": 1})
    for words, message in (
        ([rte, other], "sentiment is not a run of `finetune --task` cola, sst2"),
        ([str(tmp_path)], "is not a run of `finetune --task`"),
        ([seeds[0], seeds[1]], "seed-1: a second run of mrpc"),
        (
            [halved],
            "f1 was not measured on the held-out split; GLUE needs evaluate.metrics=f1,accuracy",
        ),
        ([rte, all_in_one], "all: a second run of rte"),
        ([some], "qqp/accuracy was not measured on the held-out split\n"),
        ([rte, "--mismatched", "f"], "--mismatched f: no run of mnli"),
        ([rte, "--test", "RTE"], "--test RTE: expected NAME=FILE, where NAME is one of CoLA"),
        ([rte, "--test", "RTE=f"], "give both or neither"),
        ([rte, "--test", "AX=f", "--output", "o"], "--test AX=f: no run of mnli"),
    ):
        assert main(["glue", *words]) == 2
        assert message in capsys.readouterr().err


def test_one_json_object_is_printed_beside_a_submission(run_of, tmp_path, monkeypatch, capsys):
    """The lines on the written files are on the standard error."""
    run = SimpleNamespace(
        data=SimpleNamespace(objective=Classification(columns=("sentence1", "sentence2", "label")))
    )
    monkeypatch.setattr(
        "pretrain.workdir.trained.open_trained",
        lambda *_, report: SimpleNamespace(run=run, params={}),
    )
    monkeypatch.setattr(
        "pretrain.inference.answering.make_answerer",
        lambda trained, batch_size: lambda texts, places, first: [{"label": "0"} for _ in texts],
    )
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    words = [run_of("rte", "rte", {"accuracy": 0.7}), "--test", f"RTE={tmp_path / 'test.tsv'}"]
    words += ["--output", str(tmp_path / "out")]
    assert main(["glue", *words, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scores"] == pytest.approx({"rte": 70})
    assert "RTE.tsv: 1 predictions" in printed.err
    assert main(["glue", *words]) == 2
    assert "RTE.tsv exists; name another --output, or add --over" in capsys.readouterr().err
    assert main(["glue", *words, "--overwrite"]) == 0
    assert "RTE.tsv: 1 predictions" in capsys.readouterr().out


def test_a_submission_is_of_the_best_run_and_numbered_as_its_file(tmp_path, monkeypatch, capsys):
    run = SimpleNamespace(
        data=SimpleNamespace(objective=Classification(columns=("premise", "hypothesis", "label")))
    )
    params = {"classifier": {"kernel": np.ones(2, np.float32)}}

    def open_predictor(workdir, step, report):
        return SimpleNamespace(workdir=workdir, step=step, run=run, params=params)

    def predict_labels(texts, places, first):
        return [{"label": "neutral" if "fox" in "".join(pair) else None} for pair in texts]

    monkeypatch.setattr("pretrain.workdir.trained.open_trained", open_predictor)
    monkeypatch.setattr(
        "pretrain.inference.answering.make_answerer",
        lambda trained, batch_size: (
            predict_labels if (trained.workdir, trained.step) == ("b", 2) else None
        ),
    )
    (tmp_path / "test.tsv").write_text(
        "index\tpairID\tsentence1\tsentence2\n4\t7\ta fox\ta dog\n9\t8\ta\tb\n"
    )
    best = {"a": (1, {"accuracy": 0.5}), "b": (2, {"accuracy": 0.6})}
    write_submission(best, "MNLI-mm", str(tmp_path / "test.tsv"), str(tmp_path / "out"), 8)
    assert (
        tmp_path / "out" / "MNLI-mm.tsv"
    ).read_text() == "index\tprediction\n4\tneutral\n9\tentailment\n"
    assert "2 predictions of b, 1 of them without a label" in capsys.readouterr().out
    with monkeypatch.context() as full_disk:
        full_disk.setattr(pathlib.Path, "write_bytes", fail_as_on_a_full_disk)
        with pytest.raises(OSError, match="No space left"):
            write_submission(best, "MNLI-mm", str(tmp_path / "test.tsv"), str(tmp_path / "out"), 8)
    assert (tmp_path / "out" / "MNLI-mm.tsv").read_text().count("\n") == 3
    (tmp_path / "none.tsv").write_text("index\tpremise\thypothesis\n")
    with pytest.raises(ValueError, match="none.tsv: contains no examples"):
        write_submission(best, "AX", str(tmp_path / "none.tsv"), str(tmp_path / "out"), 8)
    params["classifier"]["kernel"][1] = np.nan
    with pytest.raises(ValueError, match="b: the parameters of step 2 are not finite"):
        write_submission(best, "MNLI-mm", str(tmp_path / "test.tsv"), str(tmp_path / "new"), 8)
    assert not (tmp_path / "new").exists()
