"""A new workdir appears whole or not at all, also where two processes make it at once or one was killed."""

import contextlib
import os
import subprocess

import pytest

from pretrain.distributed import process_identity as process
from pretrain.workdir.check import build_folder


@pytest.fixture(autouse=True)
def strict():
    """No JAX here."""


@contextlib.contextmanager
def another_process(pid, start):
    """Let this process take itself for another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        patch.setattr(process, "start_time", lambda _: start)
        yield


def test_of_two_that_build_the_same_the_first_to_end_wins(tmp_path):
    child = subprocess.Popen(["sleep", "100"])
    start = process.start_time(child.pid)
    first = build_folder(tmp_path / "run")
    part = first.__enter__()
    (part / "config.json").write_text("first")
    with another_process(child.pid, start):
        second = build_folder(tmp_path / "run")
        (second.__enter__() / "config.json").write_text("second")
    assert (part / "config.json").read_text() == "first"  # not removed by the second
    first.__exit__(None, None, None)
    message = "run: another process has filled it meanwhile; name a new workdir"
    with pytest.raises(FileExistsError, match=message):
        second.__exit__(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "config.json").read_text() == "first"
    child.kill()
    child.wait()


def test_an_empty_folder_is_filled_and_another_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    with build_folder(tmp_path / "run") as part:
        (part / "config.json").write_text("")
    with (
        pytest.raises(FileExistsError, match="exists and is not empty; name a new workdir"),
        build_folder(tmp_path / "run"),
    ):
        pytest.fail("it is not empty")
    with pytest.raises(RuntimeError, match="in the block"), build_folder(tmp_path / "other"):
        raise RuntimeError("in the block")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    child = subprocess.Popen(["sleep", "100"])
    with another_process(child.pid, process.start_time(child.pid)):
        killed = build_folder(
            tmp_path / "run"
        )  # collected, it would clean up as no killed process does
        abandoned = killed.__enter__()
    (abandoned / "config.json").write_text("")
    others = [
        tmp_path / ".run.part",
        tmp_path / ".run.0a1b2c3d-1-1-1.part",
        tmp_path / ("x" + abandoned.name),
    ]
    for path in others:
        path.mkdir()
    with build_folder(tmp_path / "run"):
        assert abandoned.exists()  # its maker is alive
        (tmp_path / "run").mkdir()
    child.kill()
    child.wait()
    with build_folder(tmp_path / "run") as part:
        (part / "config.json").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["run", *(path.name for path in others)]
    )
