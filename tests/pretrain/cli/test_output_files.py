"""An --output replaces a file only with --overwrite, and never what the command reads."""

import json
import os

import pytest

from pretrain.__main__ import main
from pretrain.cli.output_file import check_output_file
from pretrain.training.monitoring.options import check_prometheus_path

# Each command names OUTPUT, which exists, and INPUT; all else is absent.
COMMANDS = {
    "predict": "predict --workdir absent --input INPUT --output OUTPUT",
    "evaluate": "evaluate --workdir absent --task INPUT --output OUTPUT",
    "plan": "plan INPUT --mesh 1 --output OUTPUT",
    "features": "features --workdir absent --input INPUT --output OUTPUT.npz",
    "senses": "senses --workdir absent --word bank --input INPUT --output OUTPUT.png",
    "cells": "cells --workdir absent --input INPUT --output OUTPUT.html",
    "attention": "attention --workdir absent --input INPUT --output OUTPUT.html",
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_file_is_replaced_only_on_request_and_the_input_never(
    verb, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = COMMANDS[verb].split()
    output = words[-1]
    for name in ("INPUT", output):
        (tmp_path / name).write_text("mine")
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"{output} exists; name another --output, or add --overwrite" in error
    (tmp_path / output).unlink()
    (tmp_path / output).symlink_to("INPUT")
    for more in ([], ["--overwrite"]):
        assert main([*words, *more]) == 2
        error = capsys.readouterr().err
        assert f"--output {output} is what the command reads (INPUT), which is never" in error
    assert (tmp_path / "INPUT").read_text() == "mine"


def test_a_manifest_and_a_submission_replace_files_on_request(tmp_path, capsys):
    (tmp_path / "job.yaml").write_text("mine")
    words = (
        "pod manifest --name a --for slurm --program p --output",
        str(tmp_path / "job.yaml"),
        "-- train bert_tiny --workdir runs/a",
    )
    words = " ".join(words).split()
    assert main(words) == 2
    assert "job.yaml exists; name another --output, or add --overwrite" in capsys.readouterr().err
    assert (tmp_path / "job.yaml").read_text() == "mine"
    assert main([*words[:2], "--overwrite", *words[2:]]) == 0
    assert (tmp_path / "job.yaml").read_text().startswith("#!/usr/bin/env bash")


@pytest.mark.parametrize(
    "name",
    ["config.json", "metrics.jsonl", "checkpoints/2/record/record.json", "vocabulary/pieces.txt"],
)
def test_a_file_of_a_run_is_never_replaced(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "model": {}, "data": {}}))
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name != "config.json":
        path.write_text("x")
    with pytest.raises(ValueError, match=f"{name} is a file of {tmp_path}, which is never rep"):
        check_output_file(path, overwrite=True)
    (tmp_path / "mine").mkdir()
    for mine in ("answers.jsonl", "mine/answers.jsonl"):  # a user's files next to them
        (tmp_path / mine).write_text("x")
        assert check_output_file(tmp_path / mine, overwrite=True) == tmp_path / mine


def test_a_file_of_a_store_is_never_replaced(tmp_path):
    keys = ("version", "generation", "vocabulary", "files")
    (tmp_path / "manifest.json").write_text(json.dumps(dict.fromkeys(keys, 1)))
    (tmp_path / "0123456789ab" / "train").mkdir(parents=True)
    tokens = tmp_path / "0123456789ab" / "train" / "tokens.bin"
    tokens.write_text("x")
    for path in (tmp_path / "manifest.json", tokens):
        with pytest.raises(ValueError, match=f"is a file of {tmp_path}, which is never replaced"):
            check_output_file(path, overwrite=True)


def test_a_pipe_is_written_and_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert check_output_file(tmp_path / "pipe", overwrite=False) == tmp_path / "pipe"
    assert check_output_file("/dev/null", overwrite=False)
    with pytest.raises(IsADirectoryError, match="is a folder; name a file"):
        check_output_file(tmp_path, overwrite=True)


def test_metrics_of_another_program_are_not_replaced(tmp_path):
    path = tmp_path / "node.prom"
    path.write_text("# TYPE node_load gauge\nnode_load 1\n")
    with pytest.raises(ValueError, match="has metrics of another program"):
        check_prometheus_path(str(path))
    for content in ("", "# TYPE cloze_loss gauge\n"):
        path.write_text(content)
        assert check_prometheus_path(str(path)) == str(path)


@pytest.mark.parametrize("name", ["report.html", "loss.png"])
def test_a_report_replaces_no_file_of_others(tmp_path, name, capsys):
    workdir, folder = tmp_path / "w", tmp_path / "site"
    workdir.mkdir()
    folder.mkdir()
    (workdir / "metrics.jsonl").write_text('{"step": 1, "time": 1.0, "loss": 2.0}\n')
    (folder / name).write_text("mine")
    words = ["report", "--workdir", str(workdir), "--output"]
    assert main([*words, str(folder)]) == 2
    assert f"{folder / name} is there, and {folder} has no report of" in capsys.readouterr().err
    assert (folder / name).read_text() == "mine"
    for _ in range(2):  # a report replaces an earlier one
        assert main([*words, str(tmp_path / "new")]) == 0
