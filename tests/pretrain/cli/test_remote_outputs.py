"""An output that is written on this machine alone may not be a URL: pathlib makes a folder of it."""

import pytest

from pretrain.__main__ import main
from pretrain.reporting import run_report

OUTPUTS = {
    "prepare-images absent --output gs://b/s": "--output gs://b/s",
    "prepare-captions absent --output gs://b/s": "--output gs://b/s",
    "prepare-music absent --output gs://b/s": "--output gs://b/s",
    "prepare builtin --output gs://b/s": "--output gs://b/s",
    "compose --workdir absent --output gs://b/s": "--output gs://b/s",
    "glue absent --test CoLA=absent.tsv --output gs://b/s": "--output gs://b/s",
    "report --workdir absent --output gs://b/s": "--output gs://b/s",
    "attention --workdir absent text --output gs://b/s.html": "--output gs://b/s.html",
    "attention --workdir absent text --output s.html --images gs://b/s": "--images gs://b/s",
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_remote_output_is_refused_before_anything_is_read(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {OUTPUTS[command]}: must be on this machine; copy the ")
    assert line.endswith(" to the bucket later")
    assert not list(tmp_path.iterdir())


def test_a_report_of_a_run_in_a_bucket_asks_for_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_report, "read_runs", lambda workdirs: {})
    assert main(["report", "--workdir", "gs://b/run"]) == 2
    assert capsys.readouterr().err == (
        "error: gs://b/run: name an --output on this machine for its report\n"
    )
    assert not list(tmp_path.iterdir())
