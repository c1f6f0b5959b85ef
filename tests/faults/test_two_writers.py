"""Row 22: of two runs on one workdir one writes and the other is refused; the first ends as if it
were alone.
"""

import itertools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.leases import lease
from pretrain.workdir.leases.lease import Lease
from tests import forks

ROOT = pathlib.Path(__file__).parents[2]
FAULTY = pathlib.Path(__file__).parent / "faulty.py"
TIMED = ("seconds", "tokens_per_second", "wait", "device")


def start_program(*words, fault=None, **environment):
    """Start `python -m pretrain WORDS`, with a fault if one is named."""
    program = [str(FAULTY), fault] if fault else ["-m", "pretrain"]
    return forks.Popen(
        [sys.executable, *program, *map(str, words)], cwd=ROOT, env=os.environ | {name: str(value) for name, value in environment.items()},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until(condition, *processes, seconds=200):
    """Wait for a condition while the processes run."""
    end = time.monotonic() + seconds
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def read_rows(workdir):
    return metrics_file.read_metrics(workdir / "metrics.jsonl")


def read_result(workdir, step=12):
    """Return (each row without its times, the fingerprints of the last checkpoint)."""
    untimed = [
        {key: value for key, value in row.items() if not any(word in key for word in TIMED)}
        for row in read_rows(workdir)
    ]
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.load_record(step)
    return untimed, record["params"], record["optimizer"]


@pytest.fixture
def running():
    """Return running(process): the process, which is killed at the end of the test."""
    started = []

    def note_process(process):
        started.append(process)
        return process

    yield note_process
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_run_is_refused_and_the_first_ends_as_if_alone(
    finished, configured, command, running, tmp_path, record_property
):
    words, go = ("train", configured("bert")[0], "--workdir", tmp_path / "run"), tmp_path / "go"
    first = running(start_program(*words, fault="wait:step:6", FAULTY_GO=go))
    wait_until(lambda: len(read_rows(tmp_path / "run")) >= 4, first)
    second = command(*words)
    (error_line,) = [line for line in second.stderr.splitlines() if line.startswith("error: ")]
    assert second.returncode == 2 and first.poll() is None
    who = rf"error: {tmp_path}/run is in use by process {first.pid} on host {socket.gethostname()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(train\)\."
    assert re.match(who, error_line), error_line
    go.touch()
    assert first.wait(200) == 0, first.stderr.read()
    assert read_result(tmp_path / "run") == read_result(finished[1])
    assert not (tmp_path / "run" / "lease").exists()
    record_property("second runs refused", 1)


@pytest.mark.more
def test_of_two_that_begin_at_once_one_trains(
    finished, configured, running, tmp_path, record_property
):
    words, go = ("train", configured("bert")[0], "--workdir", tmp_path / "run"), tmp_path / "go"
    both = [running(start_program(*words, fault="wait:step:6", FAULTY_GO=go)) for _ in range(2)]
    wait_until(lambda: any(process.poll() is not None for process in both))
    refused, trains = sorted(both, key=lambda process: process.poll() is None)
    assert refused.returncode == 2 and f"in use by process {trains.pid}" in refused.stderr.read()
    go.touch()
    assert trains.wait(200) == 0, trains.stderr.read()
    assert read_result(tmp_path / "run") == read_result(finished[1])
    record_property("second runs refused", 1)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("moment", ["saved:4", "finish:4"])
def test_a_holder_that_was_stopped_too_long_writes_nothing_more(
    request, finished, configured, running, tmp_path, record_property, moment
):
    """A run on another machine takes over meanwhile. finish: the holder was about to rename a
    checkpoint.
    """
    if moment != "saved:4":
        request.getfixturevalue("whole")
    words, go = ("train", configured("bert")[0], "--workdir", tmp_path / "run"), tmp_path / "go"
    first = running(start_program(*words, fault=f"stop:{moment}", FAULTY_LEASE="0.2,2"))
    wait_until(
        lambda: (
            pathlib.Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        )
    )
    second = running(
        start_program(
            *words,
            fault="wait:step:10",
            FAULTY_LEASE="0.2,2",
            FAULTY_MACHINE="another",
            FAULTY_GO=go,
        )
    )
    wait_until(lambda: len(read_rows(tmp_path / "run")) >= 8, second)
    saved = tmp_path / "run" / "checkpoints"
    wait_until(
        lambda: {path.name for path in saved.iterdir()} == {"4", "8"}, second
    )  # its background save is committed
    before = {
        path: path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and path.name not in lease_and_ledger()
    }
    first.send_signal(signal.SIGCONT)
    _, output = first.communicate(timeout=100)
    assert first.returncode == 2 and output.count("error: ") == 1, output
    assert (
        f"error: the lease of {tmp_path}/run was taken by process {second.pid} on host" in output
        and "writes nothing more" in output
    )
    after = {
        path: path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and path.name not in lease_and_ledger()
    }
    assert after == before
    go.touch()
    assert second.wait(200) == 0, second.stderr.read()
    assert read_result(tmp_path / "run") == read_result(finished[1])
    record_property("old holders that wrote nothing", 1)


def lease_and_ledger():
    """The second run renews its lease by itself."""
    return {"lease", "lease.__lock", "goodput.json", "goodput.json.part"}


@pytest.mark.more
def test_a_run_of_two_processes_is_refused_in_both_at_once(
    configured, command, tmp_path, record_property
):
    with Lease(tmp_path / "run", "train"):
        done = command(
            "local",
            "2",
            "train",
            configured("bert")[0],
            "--workdir",
            tmp_path / "run",
            "mesh.data=2",
        )
        error_lines = [line for line in done.stdout.splitlines() if "error: " in line]
        assert done.returncode == 2 and "has not come as far" not in done.stdout, done.stdout
        assert {line.removeprefix("[1] ") for line in error_lines} == {
            error_lines[0].removeprefix("[1] ")
        } and len(error_lines) == 2, done.stdout
        assert f"in use by process {os.getpid()} on host" in error_lines[0]
    record_property("second runs refused", 1)


def test_a_full_disk_does_not_lose_the_lease(small_disk, monkeypatch, capsys, record_property):
    disk = small_disk("1m")
    monkeypatch.setattr(lease, "HEARTBEAT", 0.05)
    with Lease(disk / "run", "train") as mine:
        (disk / "ballast").write_bytes(b"")
        with (
            pytest.raises(OSError, match="No space left on device"),
            open(disk / "ballast", "wb", buffering=0) as file,
        ):
            file.writelines(itertools.repeat(bytes(1024)))
        wait_until(lambda: mine._has_trouble, seconds=20)
        mine.verify_held()
        (disk / "ballast").unlink()
        wait_until(lambda: not mine._has_trouble, seconds=20)
        mine.verify_held()
    assert "No space left on device" in capsys.readouterr().err
    record_property("leases kept on a full disk", 1)


def test_the_lease_of_a_killed_run_is_taken_over_at_once(
    whole, finished, configured, command, tmp_path, record_property
):
    words = ("train", configured("bert")[0], "--workdir", tmp_path / "run")
    assert command(*words, fault="kill:step:6").returncode == -signal.SIGKILL
    assert (tmp_path / "run" / "lease").exists()
    done = command(*words)
    assert done.returncode == 0 and "Waiting" not in done.stderr, done.stderr
    assert read_result(tmp_path / "run") == read_result(finished[1])
    record_property("leases of dead processes taken over", 1)


def test_readers_work_beside_a_run(whole, configured, command, running, tmp_path, record_property):
    words, go = ("train", configured("bert")[0], "--workdir", tmp_path / "run"), tmp_path / "go"
    first = running(start_program(*words, fault="wait:step:10", FAULTY_GO=go))
    wait_until(lambda: len(read_rows(tmp_path / "run")) >= 8, first)
    for verb in (
        ("evaluate", "--workdir", tmp_path / "run"),
        ("export", "--workdir", tmp_path / "run", "--output", tmp_path / "out"),
    ):
        done = command(*verb)
        assert done.returncode == 0, done.stderr
        record_property("readers beside a run", 1)
    go.touch()
    assert first.wait(200) == 0, first.stderr.read()


def test_local_that_is_killed_leaves_no_children(
    whole, configured, running, tmp_path, record_property
):
    endless = ["train.steps=100000", "checkpoint.every=100000", "evaluate.every=0", "mesh.data=2"]
    local = running(
        start_program(
            "local", "2", "train", configured("bert")[0], "--workdir", tmp_path / "run", *endless
        )
    )
    wait_until(lambda: len(read_rows(tmp_path / "run")) >= 2, local)
    children = [
        int(pid)
        for pid in pathlib.Path(f"/proc/{local.pid}/task/{local.pid}/children").read_text().split()
    ]
    assert len(children) == 2
    local.kill()
    began = time.monotonic()
    wait_until(
        lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children), seconds=20
    )
    assert time.monotonic() - began < 2
    written = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    time.sleep(1)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == written
    record_property("children gone with `local`", 2)
