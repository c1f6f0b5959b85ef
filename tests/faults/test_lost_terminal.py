"""Row 34: output is not the run. A terminal that hangs up, a reader that leaves and a full disk under
the log end nothing; what asks a run to end saves it.
"""

import os
import pty
import shlex
import signal
import subprocess
import sys
import time

import pytest

from pretrain.training.loop import train
from tests.faults.running import (
    ROOT,
    ClosedPipe,
    assert_saved,
    list_steps,
    start_endless_run,
    wait_for_steps,
)


@pytest.fixture
def running(configured, tmp_path):
    """Return start(*words, ...) -> (process, workdir) of a run without an end."""
    processes = []

    def start(*words, **options):
        workdir = tmp_path / "run"
        processes.append(start_endless_run(configured("bert")[0], workdir, *words, **options))
        return processes[-1], workdir

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.more  # test_a_terminal_that_is_closed_saves sends SIGHUP
@pytest.mark.parametrize("name", ["SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_a_signal_that_asks_for_the_end_saves(running, record_property, name):
    process, workdir = running()
    process.send_signal(signal.Signals[name])
    assert_saved(process, workdir, 128 + signal.Signals[name])
    record_property("stopped without losing a step", 1)


@pytest.mark.more
def test_a_hangup_saves_under_local(running):
    process, workdir = running("mesh.data=2", verb=("local", "2"))
    process.send_signal(signal.SIGHUP)
    assert_saved(process, workdir, 128 + signal.SIGHUP)


def test_a_hangup_that_the_parent_ignores_stays_ignored(running):
    # This process is no fork, and TensorFlow takes as long to import as the rest to run.
    words = ("data.feed=threads",)
    process, workdir = running(*words, before=("nohup",), stdin=subprocess.DEVNULL)
    process.send_signal(signal.SIGHUP)
    wait_for_steps(workdir, len(list_steps(workdir)[0]) + 20, process)
    process.send_signal(signal.SIGTERM)
    assert_saved(process, workdir, 128 + signal.SIGTERM)


@pytest.mark.more
def test_a_second_signal_within_a_second_is_the_first(running):
    """`timeout -s INT` signals the process and then its group."""
    process, workdir = running()
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert_saved(process, workdir, 128 + signal.SIGINT)


def test_a_terminal_that_is_closed_saves(running):
    """Its master closes: the kernel sends SIGHUP, and every write fails."""
    master, slave = pty.openpty()
    process, workdir = running(stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    os.close(master)
    process.send_signal(signal.SIGHUP)  # as the kernel does to the leader of the terminal's session
    assert_saved(process, workdir, 128 + signal.SIGHUP)


# ---- output that fails ---------------------------------------------------------


def run_redirected(configured, workdir, redirection, *words, status=0):
    """Train 12 steps with a shell's redirection, and return the standard error."""
    command = [sys.executable, "-m", "pretrain", "train", configured("bert")[0]]
    line = shlex.join(map(str, [*command, "--workdir", workdir, *words])) + f" {redirection}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("redirection", "stream", "reason"),
    [
        ("2>&-", "standard error", "was closed at the start"),
        ("1>&- 2>&- 0<&-", "standard output", "was closed at the start"),
        ("2>/dev/full", "standard error", "No space left on device"),
        ("2>&1 | head -1; exit ${PIPESTATUS[0]}", "standard error", "Broken pipe"),
        ("2> >(exit)", "standard error", "Broken pipe"),
    ],
)
def test_a_stream_that_fails_is_dropped_and_noted(
    request, configured, tmp_path, record_property, redirection, stream, reason
):
    if redirection == "2> >(exit)":  # the pipe of `head` is as broken
        request.getfixturevalue("whole")
    workdir = tmp_path / "run"
    run_redirected(configured, workdir, redirection)
    assert list_steps(workdir) == (list(range(1, 13)), [4, 8, 12])
    lines = (workdir / "lost_output-0.txt").read_text().splitlines()
    (line,) = [line for line in lines if stream in line]
    assert reason in line
    record_property("output lost without losing the run", 1)


def test_a_run_without_a_fault_has_no_note(finished):
    assert not list(finished[1].glob("lost_output*"))


def test_nothing_is_written_to_a_file_that_takes_the_place_of_a_closed_stream(configured, tmp_path):
    """A descriptor that is free is the next file's, and libraries write their messages to it."""
    code = (
        "import os, sys; from pretrain.host.lost_output import open_missing_streams; "
        "open_missing_streams(); file = open(sys.argv[1], 'w'); os.write(2, b'a message'); "
        "print('more', file=sys.stderr, flush=True); print(file.fileno(), file=file)"
    )
    line = shlex.join([sys.executable, "-c", code, str(tmp_path / "file")]) + " 0<&- 1>&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=ROOT).returncode == 0
    assert int((tmp_path / "file").read_text()) > 2


@pytest.mark.more
def test_local_goes_on_without_its_terminal(configured, tmp_path):
    workdir = tmp_path / "run"
    command = [sys.executable, "-m", "pretrain", "local", "2", "train", configured("bert")[0]]
    words = [*command, "--workdir", workdir, "mesh.data=2"]
    line = shlex.join(map(str, words)) + " 2>&1 | head -1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert list_steps(workdir) == (list(range(1, 13)), [4, 8, 12])


@pytest.mark.more
def test_a_training_in_python_goes_on_without_its_output(configured, tmp_path, monkeypatch):
    """There the streams are the caller's, who finds them as they were."""
    _, run, _ = configured("bert")
    monkeypatch.setattr(sys, "stderr", pipe := ClosedPipe())
    assert train(run, tmp_path / "run") is None
    assert sys.stderr is pipe
    assert list_steps(tmp_path / "run") == (list(range(1, 13)), [4, 8, 12])
    (line,) = (tmp_path / "run" / "lost_output-0.txt").read_text().splitlines()
    assert line.endswith("standard error is lost (Broken pipe); the run goes on without it")


def test_a_result_that_cannot_be_printed_is_an_error(tmp_path):
    """`describe` has nothing but its output."""
    words = shlex.join([sys.executable, "-m", "pretrain", "describe", "bert_mini"])
    full = subprocess.run(
        ["bash", "-c", f"{words} > /dev/full"], cwd=ROOT, capture_output=True, text=True
    )
    assert full.returncode == 2 and "Traceback" not in full.stderr, full.stderr
    assert "error: " in full.stderr and "No space left on device" in full.stderr
    piped = subprocess.run(
        ["bash", "-c", f"{words} > >(exit)"], cwd=ROOT, capture_output=True, text=True
    )
    assert piped.returncode == 141 and not piped.stderr, piped.stderr


def test_prepare_writes_its_store_without_a_reader(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {i} river runs under the old house.\n" for i in range(400)))
    words = ["prepare", text, "--output", tmp_path / "store", "--document", "record"]
    words += ["--vocab-size", "60", "--algorithm", "bpe"]
    command = shlex.join(map(str, [sys.executable, "-m", "pretrain", *words]))
    done = subprocess.run(
        ["bash", "-c", f"{command} > >(exit) 2> >(exit)"], cwd=ROOT, capture_output=True
    )
    assert done.returncode == 0 and (tmp_path / "store" / "manifest.json").exists()
