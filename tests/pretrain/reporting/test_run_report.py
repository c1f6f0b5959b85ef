"""The report page shows the contents of a run's files, for any number of runs, and fetches nothing."""

import argparse
import configparser
import errno
import json
import os
import pathlib
import re
import types

import jax
import numpy as np
import pytest
from etils import epath

from data.corpus.json_lines import format_json_lines
from pretrain.cli import report
from pretrain.cli.report import find_patch_figures
from pretrain.config import Mesh, flatten_config
from pretrain.mesh.sharding import make_mesh
from pretrain.reporting import curve_images
from pretrain.reporting.curves import list_curves
from pretrain.reporting.run_report import (
    MAX_POINTS,
    add_mfu,
    describe_best_step,
    make_curves,
    summarize_rows,
    thin_series,
    write_report,
)
from pretrain.workdir import environment_file, samples_file
from pretrain.workdir.goodput import PHASES


def write_rows(workdir, count=1000, scale=1.0, **more):
    workdir.mkdir(parents=True)
    lines = [
        {
            "step": n,
            "loss": scale * 9 / n,
            "next_sentence": 1 / n,
            "gradient_norm": 1.0,
            "learning_rate": 0.1,
            "tokens": 50.0,
            "seconds": 2.0,
            "skipped": 0.0,
        }
        | {"tokens_per_second": 25.0, "masked_lm_accuracy": n / count}
        | ({"heldout_loss": 8 / n, "heldout_next_sentence": 0.5} if n % 100 == 0 else {})
        for n in range(1, count + 1)
    ]
    if count > 4:
        lines[4]["loss"] = None
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (workdir / "config.json").write_text(
        json.dumps({"type": "Run", "train": {"type": "Train", "steps": count}, **more})
    )
    return lines


def read_page_data(path):
    text = path.read_text(encoding="utf-8")
    return text, json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    )["runs"]


def test_a_diverged_run_has_a_page(tmp_path):
    workdir = tmp_path / "w"
    write_rows(workdir, 10, limit=float("inf"))
    with open(workdir / "metrics.jsonl", "a") as file:
        file.write('{"step": 11, "loss": NaN, "heldout_loss": NaN}\n{"step": 12, "loss": "x"}\n')
    gaps = '{"target": "dog", "prediction": "cat", "probability": NaN}'
    (workdir / samples_file.NAME).write_text(
        f'{{"step": 10, "samples": [{{"text": ["The", ""], "gaps": [{gaps}]}}]}}\n'
    )
    (path,) = write_report([workdir], tmp_path / "out", write_images=False)
    text, (run,) = read_page_data(path)
    assert "NaN" not in text.split("</script>")[0]
    assert run["facts"]["steps"] == 12 and run["curves"][0]["train"][0][-1] == 10
    assert run["samples"]["rows"][0]["predictions"] == [[["cat", None]]]
    assert run["config"]["limit"] is None


def test_a_name_that_is_not_utf_8_is_on_the_page(tmp_path):
    """Linux allows any bytes in a path; Python reads them as halves of characters."""
    store = os.fsdecode(b"caf\xe9")
    write_rows(tmp_path / "w", 2, store=store)
    (path,) = write_report([tmp_path / "w"], tmp_path / "out", write_images=False)
    assert read_page_data(path)[1][0]["config"]["store"] == store


GAP = {"target": "dog", "prediction": "cat", "probability": 0.5}
SAMPLES = [{"text": ["The", ""], "gaps": [GAP]}]


@pytest.mark.parametrize(
    "samples",
    [
        3,
        [3],
        [{"text": "The", "gaps": [GAP]}],
        [{"text": ["The", 3], "gaps": [GAP]}],
        [{"text": ["The", ""]}],
        [{"text": ["The", ""], "gaps": [GAP | {"prediction": None}]}],
        [{"text": ["The", ""], "gaps": [{"prediction": "cat", "probability": 0.5}]}],
    ],
)
def test_samples_of_another_form_are_damaged_lines(tmp_path, samples, capsys):
    write_rows(tmp_path / "w", 2)
    lines = [{"step": n, "samples": each} for n, each in ((1, samples), (2, SAMPLES))]
    (tmp_path / "w" / samples_file.NAME).write_text(format_json_lines(lines))
    (path,) = write_report([tmp_path / "w"], tmp_path / "out", write_images=False)
    assert read_page_data(path)[1][0]["samples"]["steps"] == [2]
    assert "samples.jsonl: 1 damaged lines are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"time": "now"}, {"time": 1e300}, {"mesh": None}, {"device": 3}, {"peak_flops": "1"}]
)
def test_starts_of_another_form_are_damaged_lines(tmp_path, change, capsys):
    write_rows(tmp_path / "w", 2)
    path = tmp_path / "w" / environment_file.NAME
    environment_file.add_start(tmp_path / "w", 0, make_mesh(Mesh(-1)), 1, 1.0, 10.0)
    line = json.loads(path.read_text())
    path.write_text(format_json_lines([line | change, line | {"step": 1}]))
    (path,) = write_report([tmp_path / "w"], tmp_path / "out", write_images=False)
    assert [start["step"] for start in read_page_data(path)[1][0]["environment"]] == [1]
    assert capsys.readouterr().err.count("environment.jsonl: 1 damaged lines are left out") == 1


def test_a_page_is_replaced_whole(tmp_path, monkeypatch):
    write_rows(tmp_path / "w", 2)
    (path,) = write_report([tmp_path / "w"], write_images=False)
    before = path.read_text()

    def write_half(path, content, *args, **kwargs):
        with open(path, "wb") as file:
            file.write(content[:9] if isinstance(content, bytes) else content[:9].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    for name in ("write_bytes", "write_text"):
        monkeypatch.setattr(pathlib.Path, name, write_half)
    with pytest.raises(OSError, match="No space left"):
        write_report([tmp_path / "w"], write_images=False)
    monkeypatch.undo()
    assert path.read_text() == before


def test_a_damaged_ledger_is_reported_once(tmp_path, monkeypatch, capsys):
    write_rows(tmp_path / "w", 2)
    (tmp_path / "w" / "goodput.json").write_text("{")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no images
    assert report.run(argparse.Namespace(workdir=[str(tmp_path / "w")], output=None)) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "goodput.json" in line]
    assert line.endswith("goodput.json cannot be read; the report has no goodput")


def test_the_filters_of_a_diverged_model_are_not_drawn(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"model": {"patch_size": 4}}))
    trained = types.SimpleNamespace(params={"kernel": np.array([1.0, np.nan])})
    monkeypatch.setattr("pretrain.workdir.trained.open_trained", lambda workdir: trained)
    monkeypatch.setattr("pretrain.workdir.checkpoints.Checkpoints.list_steps", lambda self: [1])
    (tmp_path / "checkpoints").mkdir()
    assert find_patch_figures(epath.Path(tmp_path)) is None
    assert "parameters are not finite, so the filters are not drawn" in capsys.readouterr().out


def test_a_run_over_images_counts_images(tmp_path):
    """On its axis and in its summary; a source keeps the name that it has."""
    write_rows(tmp_path / "w", 10)
    rows = (tmp_path / "w" / "metrics.jsonl").read_text()
    scores = {"step": 11, "tokens": 50, "seconds": 2.0, "heldout_loss": 1.0}
    scores |= {"heldout_loss/my_own.txt": 2.0, "heldout_squad_f1": 61.0}
    (tmp_path / "w" / "metrics.jsonl").write_text(rows + json.dumps(scores) + "\n")
    settings = {"data": {"objective": {"type": "ImageClassification"}}}
    settings |= {"checkpoint": {"best": "loss/my_own.txt"}}
    (tmp_path / "w" / "config.json").write_text(json.dumps(settings))
    (path,) = write_report([tmp_path / "w"], tmp_path / "out", write_images=False)
    _, (run,) = read_page_data(path)
    labels = [curve["label"] for curve in run["curves"]]
    assert run["unit"] == "images" and "images/s" in labels and "tokens/s" not in labels
    assert {"loss/my_own.txt", "squad f1"} <= set(labels)
    assert run["facts"]["images"] == 550 and "images/s, mean" in run["facts"]
    assert run["best"]["by"] == "loss/my_own.txt"


def test_two_runs_of_one_name_on_one_page(tmp_path):
    write_rows(tmp_path / "a" / "w", note="</script><script>alert(1)</script> https://x.org/")
    write_rows(tmp_path / "b" / "w", 10, scale=2.0)
    seconds = dict.fromkeys(PHASES, 0.0) | {"start": 10.0, "step": 30.0}
    (tmp_path / "b" / "w" / "goodput.json").write_text(
        json.dumps({"starts": 2, "until": 0.0, "ended": True, "seconds": seconds, "marks": {}})
    )
    gaps = [{"target": "dog", "prediction": "<b>cat</b>", "probability": 0.25}]
    samples_file.add_samples(
        tmp_path / "b" / "w" / samples_file.NAME,
        {"step": 10, "samples": [{"text": ["The", "barks."], "gaps": gaps}]},
    )
    (path,) = write_report(
        [tmp_path / "a" / "w", tmp_path / "b" / "w"], tmp_path / "out", write_images=False
    )
    text, (first, second) = read_page_data(path)
    assert [first["title"], second["title"]] == [
        str(tmp_path / "a" / "w"),
        str(tmp_path / "b" / "w"),
    ]
    labels = [
        "loss (nats)", "accuracy", "gradient norm", "learning rate", "tokens/s",
        "next sentence",
    ]  # fmt: skip
    assert (
        [curve["label"] for curve in first["curves"]]
        == [curve["label"] for curve in second["curves"]]
        == labels
    )
    loss = second["curves"][0]
    assert (
        loss["train"][0] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
        and loss["train"][3][1] == 9.0
        and loss["heldout"] is None
    )
    assert loss["train"][1][-1] == 500 and loss["train"][2][-1] == pytest.approx(20 / 3600)
    assert (
        first["curves"][0]["heldout"][0] == [*range(100, 1001, 100)]
        and first["curves"][-1]["heldout"][3] == [0.5] * 10
    )
    assert len(first["curves"][0]["train"][0]) <= MAX_POINTS and first["heldout"] == {
        "heldout_loss": 0.008,
        "heldout_next_sentence": 0.5,
    }
    assert (
        first["facts"]["steps"] == 1000
        and first["facts"]["tokens"] == 50_000
        and first["facts"]["tokens/s, mean"] == 25
    )
    assert first["goodput"] is None and second["goodput"] == {"starts": 2, "seconds": seconds}
    assert first["config"]["train.steps"] == 1000 and second["config"]["train.steps"] == 10
    assert first["samples"] == {"steps": [], "rows": []} and second["samples"]["steps"] == [10]
    assert second["samples"]["rows"] == [
        {"text": ["The", "barks."], "targets": ["dog"], "predictions": [[["<b>cat</b>", 0.25]]]}
    ]
    # No text of a run is executed or fetched.
    assert (
        "<script>alert" not in text
        and text.count("<script") == text.count("</script") == 2
        and "default-src 'none'" in text
    )
    template = text.replace(text[text.index('id="data">') : text.index("</script>")], "")
    assert not re.search(r"https?:|\bsrc=|\bhref=|url\(|@import|\bimport\(|fetch\(", template)


@pytest.mark.parametrize("rule", [3, {"best": ["loss"]}, {"best": 3}, {"best": ""}])
def test_a_damaged_rule_chooses_by_the_loss(tmp_path, rule):
    write_rows(tmp_path / "w", 200, checkpoint=rule)
    (path,) = write_report([tmp_path / "w"], tmp_path / "out", write_images=False)
    best = read_page_data(path)[1][0]["best"]
    assert best["by"] == "loss" and best["step"] == 200


def test_the_score_that_chooses_the_step_is_drawn_and_reported_at_its_best(tmp_path):
    """It has no counterpart in training; the loss has its minimum elsewhere."""
    write_rows(tmp_path / "w", 0, checkpoint={"best": "matthews"})
    scored = [
        {
            "step": n,
            "heldout_loss": loss,
            "heldout_classification": loss,
            "heldout_matthews": value,
            "heldout_rows": 9,
            "heldout_sst2/accuracy": 0.5,
        }
        for n, loss, value in ((10, 0.3, 0.0), (20, 0.5, 0.4), (30, 0.6, 0.2), (40, 0.7, None))
    ]
    (tmp_path / "w" / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in scored)
    )
    (page_run,) = read_page_data(
        write_report([tmp_path / "w"], tmp_path / "out", write_images=False)[0]
    )[1]
    found = {
        curve["label"]: (
            curve["train"],
            curve["heldout"] and [curve["heldout"][0], curve["heldout"][3]],
        )
        for curve in page_run["curves"]
    }
    assert list(found) == ["loss (nats)", "matthews", "sst2/accuracy"] and found["matthews"] == (
        None,
        [[10, 20, 30], [0.0, 0.4, 0.2]],
    )
    assert (
        page_run["heldout"]["heldout_matthews"] == 0.2
        and page_run["best"]["by"] == "matthews"
        and page_run["best"]["step"] == 20
    )
    assert page_run["best"]["scores"] == {
        key: value for key, value in scored[1].items() if key != "step"
    }
    # Without a metric it is the lowest loss; without scores there is none.
    assert (
        describe_best_step({10: {"heldout_loss": 0.3}, 20: {"heldout_loss": 0.2}}, "loss")["step"]
        == 20
    )
    assert describe_best_step({10: {"heldout_loss": 0.3}}, "f1") is None
    # A loss may have several accuracies: one is drawn with the loss, the others separately.
    keys = ("masked_lm_accuracy", "next_sentence_accuracy", "heldout_masked_lm_accuracy")
    assert [curve[2:4] for curve in list_curves([{"step": 1} | dict.fromkeys(keys, 0.5)])] == [
        (keys[0], keys[2]),
        (keys[1], None),
    ]


def test_a_run_has_a_title_and_is_drawn_once(tmp_path, monkeypatch):
    write_rows(tmp_path / "w", 2)
    write_rows(tmp_path / "x" / "w", 2)
    monkeypatch.chdir(tmp_path / "w")
    assert [
        run["title"]
        for run in read_page_data(write_report(["."], tmp_path / "out", write_images=False)[0])[1]
    ] == ["w"]
    assert [
        run["title"]
        for run in read_page_data(
            write_report([".", "../x/w"], tmp_path / "out", write_images=False)[0]
        )[1]
    ] == [".", "../x/w"]
    for again in ("../w/", str(tmp_path / "w")):
        with pytest.raises(ValueError, match=f"--workdir {again} is given twice"):
            write_report([".", again], tmp_path / "out", write_images=False)


def test_a_thinned_curve_is_the_means_of_its_parts():
    along = {n: (10 * n, n / 2) for n in range(1, 8)}
    assert thin_series([1, 2, 4, 5, 7], [1.0, 3.0, 4.0, 6.0, 9.0], along, max_points=3) == [
        [2, 5, 7],
        [20, 50, 70],
        [1.0, 2.5, 3.5],
        [2.0, 5.0, 9.0],
    ]
    assert thin_series([], [], along) is None
    assert flatten_config({"type": "Run", "a": {"type": "A", "b": {"c": 1}, "d": [2]}}) == {
        "type": "Run",
        "a.type": "A",
        "a.b.c": 1,
        "a.d": [2],
    }


def test_a_start_records_the_version_of_this_program(tmp_path, root, monkeypatch):
    settings = configparser.ConfigParser()
    settings.read(root / "setup.cfg")
    name = settings["metadata"]["name"]
    monkeypatch.setattr(environment_file, "find_version", lambda package: f"{package} 9")
    environment_file.add_start(tmp_path, 0, make_mesh(Mesh(-1)), 1, 100.0, None)
    (line,) = environment_file.read_starts(tmp_path)
    assert line["packages"][name] == f"{name} 9"


def test_phases_are_marked_where_they_begin(tmp_path, monkeypatch):
    """On the page by step, tokens and hours; on the images by a line with the name."""
    marked = []
    rows = write_rows(tmp_path / "run", 9)
    rows = [row | {"phase": "short" if row["step"] < 4 else "long"} for row in rows]
    (tmp_path / "run" / "metrics.jsonl").write_text(format_json_lines(rows))
    mark = curve_images._mark_phases
    monkeypatch.setattr(
        curve_images, "_mark_phases", lambda *args: (marked.append(args[1]), mark(*args))
    )
    pytest.importorskip("matplotlib")
    path, *images = write_report([tmp_path / "run"], tmp_path / "out")
    _, (run,) = read_page_data(path)
    expected = [("short", [1, 50.0, 2 / 3600]), ("long", [4, 200.0, 8 / 3600])]
    assert [(phase["name"], phase["at"]) for phase in run["phases"]] == [
        (name, pytest.approx(at)) for name, at in expected
    ]
    assert marked == [{"short": 1, "long": 4}] * len(images) and images
    write_rows(tmp_path / "plain", 9)
    (path,) = write_report([tmp_path / "plain"], tmp_path / "other", write_images=False)
    assert read_page_data(path)[1][0]["phases"] == []


def test_a_step_of_a_stair_has_its_own_flops(tmp_path):
    environment_file.add_start(tmp_path, 0, make_mesh(Mesh(-1)), 1, 100.0, 1000.0)
    phases = [{"name": "", "stop": 2, "flops_per_step": 100.0}]
    phases += [{"name": "", "stop": 9, "flops_per_step": 300.0}]
    environment_file.extend_start(tmp_path, phases=phases)
    rows = [{"step": n, "seconds": 0.5} for n in (1, 2, 3, 9)]
    found = add_mfu(rows, environment_file.read_starts(tmp_path))
    assert [row["mfu"] for row in found] == [0.2, 0.2, 0.6, 0.6]


def test_the_environment_of_a_run_gives_its_mfu(tmp_path):
    """Each row belongs to a start; a start's line replaces lines of starts that completed no step."""
    mesh = make_mesh(Mesh(-1))
    for step, peak in ((0, 1.0), (0, 1000.0), (4, None), (2, 500.0)):
        environment_file.add_start(tmp_path, step, mesh, 1, 100.0, peak)
    lines = environment_file.read_starts(tmp_path)
    assert [(line["step"], line["peak_flops"]) for line in lines] == [(0, 1000.0), (2, 500.0)]
    assert (
        lines[0]["devices"] == 8
        and lines[0]["packages"]["jax"] == jax.__version__
        and sorted(path.name for path in tmp_path.iterdir()) == [environment_file.NAME]
    )
    found = add_mfu(
        [{"step": n, "loss": 1.0, "seconds": 0.5} for n in (1, 2, 3)]
        + [{"step": 4, "seconds": None}],
        lines,
    )
    assert [row.get("mfu") for row in found] == [0.2, 0.2, 0.4, None]
    fast = add_mfu([{"step": 1, "seconds": 0.5}, {"step": 2, "seconds": 0.05}], lines)
    assert [row["mfu"] for row in fast] == [0.2, None]
    summary = summarize_rows([row | {"tokens": 1} for row in fast])
    assert summary["MFU, mean"] == 0.2 and summary["steps over the peak, without MFU"] == 1
    assert make_curves(found)[-1]["label"] == "MFU"
    assert not any("mfu" in row for row in add_mfu([{"step": 1, "seconds": 1.0}], []))
    (tmp_path / environment_file.NAME).write_text("{}\n")
    assert environment_file.read_starts(tmp_path) == []
