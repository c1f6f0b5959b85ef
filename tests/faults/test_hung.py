"""Row 8: whatever hangs, the process prints where, with the stacks of its threads, and exits soon
after the limit.
"""

import json
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest

from pretrain.cli import local
from pretrain.processes.watchdog import HUNG
from pretrain.workdir.checkpoints import Checkpoints
from tests.fingerprints import read_fingerprints

FAULTY = pathlib.Path(__file__).parent / "faulty.py"

# The limit under test; all other limits are too long to matter.
LIMITS = [
    "watchdog.start=100", "watchdog.compile=100", "watchdog.data=100", "watchdog.step=100",
    "watchdog.evaluate=100", "watchdog.save=100",
]  # fmt: skip
# {fault: (the part that the watchdog names, the function that hangs, the newest checkpoint afterwards)}
HANGS = {
    "hang:step:5": ("step", "log_step", 4),
    "hang:data:5": (
        "data",
        "build_or_befall",
        None,
    ),  # batches are built ahead: step 4 may not have been saved
    "hang:save:8": ("save", "befall_then_save", 4),
    "hang:finish:8": ("save", "befall_then_finalize", 4),
    "hang:finish:12": ("save", "befall_then_finalize", 8),  # only the end follows
    "hang:delete:8": ("save", "finalize_then_befall", 8),
    "hang:evaluate:6": ("evaluate", "befall_in_feed", 4),
}
SECONDS = {
    "step": 6,
    "data": 6,
    "save": 10,
    "evaluate": 10,
}  # the first save and evaluation are compiled, on a machine that may be busy


def words_of(part):
    return [*LIMITS, f"watchdog.{part}={SECONDS[part]}"]


def train_until_hung(fault, configured, command, workdir, record_property):
    """Train with a fault until the watchdog ends the run, and return its output."""
    part, function, newest = HANGS[fault]
    done = command(
        "train", configured("bert")[0], "--workdir", workdir, *words_of(part), fault=fault
    )
    ended = time.time()
    assert done.returncode == HUNG, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    lasted = re.match(
        rf"error: hung: '{part}' has lasted (\d+) s; its limit is watchdog.{part}={SECONDS[part]}\.",
        line,
    )
    assert lasted and int(lasted[1]) <= SECONDS[part] + 2, line
    stacks = (workdir / "hung-0.txt").read_text()
    assert (
        re.search(rf"in {function}\n.*in hang\n", stacks)
        and "thread MainThread:" in stacks
        and stacks in done.stderr
    )
    assert ended - (workdir / "hung-0.txt").stat().st_mtime < 5
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert newest is None or checkpoints.list_steps()[:1] == [newest]
    record_property("hangs ended", 1)
    return done.stderr


def test_a_hung_save_ends_with_stacks_and_the_run_goes_on(
    configured, command, tmp_path, record_property
):
    """The fault is in Orbax's thread: the loop notices it only at the next save."""
    train_until_hung("hang:finish:8", configured, command, tmp_path / "run", record_property)
    ledger = json.loads((tmp_path / "run" / "goodput.json").read_text())
    assert ledger["ended"] is False


@pytest.mark.held_by(1)
@pytest.mark.parametrize("fault", HANGS)
def test_whatever_hangs_ends_with_stacks_and_the_run_goes_on(
    whole, finished, configured, command, tmp_path, record_property, fault
):
    train_until_hung(fault, configured, command, tmp_path / "run", record_property)
    done = command("train", configured("bert")[0], "--workdir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert read_fingerprints(tmp_path / "run", 12) == read_fingerprints(finished[1], 12)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("fault", "hung"), [("hang:step:5", 1), ("hang:data:5", 1), ("hang:finish:8", 0)]
)  # the first process names processes
def test_all_processes_leave_when_something_of_one_hangs(
    whole, configured, tmp_path, record_property, fault, hung
):
    part = HANGS[fault][0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    limits = [*LIMITS, *(f"watchdog.{name}=10" for name in ("step", "data", "save")), "mesh.data=2"]
    words = ["train", str(configured("bert")[0]), "--workdir", str(tmp_path / "run"), *limits]
    processes = []
    for i in range(2):
        start = local.build_command(i, 2, 1, port, words)
        if i == hung:
            start["args"] = [sys.executable, str(FAULTY), fault, *words]
        processes.append(subprocess.Popen(**start, cwd=FAULTY.parents[2]))
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    ended = time.time()
    assert [process.returncode for process in processes] == [HUNG, HUNG], outputs
    assert f"error: hung: '{part}' has lasted" in outputs[hung] and "in hang\n" in outputs[hung]
    assert all(
        "error: hung: " in text and "thread MainThread:" in text and "Check failure" not in text
        for text in outputs
    )
    assert ended - metrics_written(tmp_path / "run") < 10 + 5
    record_property("hangs of one of two processes ended", 1)


def metrics_written(workdir):
    return (workdir / "metrics.jsonl").stat().st_mtime


@pytest.mark.held_by(1)
@pytest.mark.parametrize("number", range(10))
def test_a_clean_run_raises_no_alarm_though_it_compiles_for_long(
    whole, configured, command, tmp_path, record_property, number
):
    """Compilation takes longer than the limits of a step and a batch."""
    limits = "watchdog.start=60 watchdog.compile=60 watchdog.data=15 watchdog.step=15 watchdog.evaluate=40 watchdog.save=40".split()
    done = command(
        "train",
        configured("bert")[0],
        "--workdir",
        tmp_path / "run",
        *limits,
        f"train.seed={number}",
        fault="slow:compile:1",
    )
    assert done.returncode == 0, done.stderr
    ledger = json.loads((tmp_path / "run" / "goodput.json").read_text())["seconds"]
    assert (
        ledger["compile"] > 20
        and "hung" not in done.stderr
        and not (tmp_path / "run" / "hung-0.txt").exists()
    )
    record_property("clean runs without an alarm", 1)
