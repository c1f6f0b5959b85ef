"""A campaign of torture counts whatever fails, leaves no process and no empty section."""

import itertools
import pathlib
import subprocess
import sys
import types
from typing import Any

import pytest

from benchmarks.reliability import torture, torture_run
from benchmarks.reliability.torture_results import Totals
from benchmarks.reliability.torture_run import Failed, TorturedRun

pytestmark = pytest.mark.fast
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    """Return make_run(), a run whose starts sleep; `.started` has its processes."""
    started = []

    def start_sleeping(*args, **kwargs):
        started.append(subprocess.Popen(SLEEP, text=True))
        return started[-1]

    def make_run():
        run = TorturedRun(pathlib.Path("config.json"), tmp_path / "disk", tmp_path / "notes")
        return run

    monkeypatch.setattr(torture_run.forks, "Popen", start_sleeping)
    make_run.started = started
    yield make_run
    for process in started:
        process.kill()
        process.wait()


def test_a_last_start_that_hangs_fails_and_is_killed(make_run, monkeypatch):
    monkeypatch.setattr(torture_run, "TOO_LONG", 0.1)
    with pytest.raises(Failed, match="last start did not end within 0.1 s"):
        make_run().finish_run(1, 4)
    assert make_run.started[0].returncode is not None


def make_references(clock) -> Any:
    run = types.SimpleNamespace(pace=1.0)
    store = types.SimpleNamespace(path=clock.parent / "original")
    store.path.mkdir()
    return types.SimpleNamespace(
        get_config=lambda model: (pathlib.Path("config.json"), None, store),
        get_run=lambda model: run,
        clock=clock,
    )


@pytest.fixture
def torture_folder(tmp_path, monkeypatch):
    """Return a folder for schedules, whose disks are folders."""

    def make_disk(folder):
        folder.mkdir(parents=True)
        return torture.contextlib.nullcontext(folder)

    monkeypatch.setattr(torture, "mount_disk", make_disk)
    return tmp_path


def test_an_error_of_the_campaign_is_a_failed_schedule(torture_folder, monkeypatch):
    def lose_file(run, fault):
        raise FileNotFoundError("rows.jsonl")

    monkeypatch.setattr(torture, "befall_run", lose_file)
    totals = Totals()
    references = make_references(torture_folder / "clock")
    seeds = itertools.islice(itertools.count(1), 2)
    torture.run_campaign(seeds, float("inf"), references, torture_folder, totals)
    assert len(totals.failed) == 2 and not totals.passed
    assert "FileNotFoundError: rows.jsonl" in totals.failed[0]
    history = (torture_folder / "seed1" / "notes" / "history.txt").read_text()
    assert "FileNotFoundError: rows.jsonl" in history and "Traceback" in history


def test_a_campaign_that_is_stopped_kills_the_process_of_its_run(
    torture_folder, make_run, monkeypatch
):
    def stop_in_fault(run, fault):
        run.start_process("none")
        torture.stop_campaign(15, None)

    monkeypatch.setattr(torture, "befall_run", stop_in_fault)
    totals = Totals()
    references = make_references(torture_folder / "clock")
    torture.run_campaign(iter([1]), float("inf"), references, torture_folder, totals)
    assert make_run.started[0].returncode is not None
    assert totals.starts == 1 and not totals.failed and not totals.passed


@pytest.mark.parametrize("passed", [0, 1])
def test_a_section_is_added_if_a_schedule_ended_and_no_folder_is_left(
    passed, tmp_path, monkeypatch
):
    added, used = [], []

    def run_none(seeds, end, references, workdir, totals):
        used.append(workdir)
        totals.passed.update(["nothing"] * passed)

    monkeypatch.setattr(torture, "run_campaign", run_none)
    monkeypatch.setattr(torture, "References", lambda folder: folder.mkdir(parents=True))
    monkeypatch.setattr(torture, "add_result", lambda *words: added.append(words))
    monkeypatch.setattr(torture, "format_results", lambda *words: [])
    monkeypatch.setattr(torture.os, "geteuid", lambda: 0)
    monkeypatch.setattr(torture.signal, "signal", lambda *_: None)
    monkeypatch.setattr(torture.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [torture.__file__, "--minutes", "0.000001"])
    torture.main()
    assert len(added) == passed and used[0].parent == tmp_path
    assert not used[0].exists()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--workdir", str(tmp_path / "own")])
    torture.main()
    assert used[1].exists()
