"""A workdir answers each question once, from the files that the last start left."""

import json
import os

import pytest

from pretrain.config import to_json
from pretrain.training.continuation import check_workdir
from pretrain.workdir.workdir import Workdir

pytestmark = pytest.mark.fast


@pytest.fixture
def run(configs):
    from pretrain.config import load

    return load(configs["bert"])


def test_a_folder_that_is_missing_has_nothing(tmp_path):
    workdir = Workdir.open(tmp_path / "none")
    assert not workdir.has_config and not workdir.has_finished_steps
    assert workdir.list_steps() == workdir.read_metrics() == []
    assert workdir.read_origin() is None
    with pytest.raises(FileNotFoundError, match="no such folder"):
        _ = workdir.run
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["checkpoints/3", "checkpoints/3.tmp", "damaged/3", "damaged/3.1"])
def test_a_checkpoint_is_a_finished_step_even_if_it_is_damaged(tmp_path, name):
    (tmp_path / name).mkdir(parents=True)
    assert Workdir.open(tmp_path).has_finished_steps
    assert Workdir.open(tmp_path).list_steps() == ([3] if name == "checkpoints/3" else [])


def test_a_logged_step_is_finished_and_an_empty_log_is_none(tmp_path):
    for text, expected in (("", False), ('{"step": 1}\n', True)):
        (tmp_path / "metrics.jsonl").write_text(text)
        assert Workdir.open(tmp_path).has_finished_steps == expected


def test_a_workdir_remembers_what_it_was_asked_and_opens_again(run, tmp_path):
    (tmp_path / "config.json").write_text(to_json(run))
    workdir = Workdir.open(tmp_path)
    assert Workdir.open(workdir) is workdir
    assert workdir.run == run and not workdir.has_finished_steps
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert workdir.run == run and not workdir.has_finished_steps
    assert check_workdir(run, workdir, allow_changes=False) is None
    assert Workdir.open(tmp_path).has_finished_steps


def test_it_is_a_path(tmp_path):
    workdir = Workdir.open(tmp_path)
    (workdir / "origin.json").write_text(json.dumps({"folder": "a"}))
    assert workdir.read_origin() == {"folder": "a"}
    assert os.fspath(workdir) == str(workdir) == str(tmp_path)
    assert os.fspath(Workdir.open("gs://bucket/run")) == "gs://bucket/run"


def test_steps_are_numbers_and_the_newest_is_first(tmp_path):
    for name in ("9", "10", "2.orbax", "latest"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert Workdir.open(tmp_path).list_steps() == [10, 9]
