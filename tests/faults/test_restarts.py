"""Row 13, on the board: one of two processes is killed three times; `local --restarts` resumes to
the same bits.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from pretrain.workdir import metrics_file
from tests.command import split_words
from tests.fingerprints import read_fingerprints

ROOT = pathlib.Path(__file__).parents[2]


def make_command(configured, workdir):
    steps = (
        "train.steps=400 checkpoint.every=20 checkpoint.keep=3 evaluate.every=0 mesh.data=2".split()
    )
    return [
        *split_words(
            f"{sys.executable} -m pretrain local --restarts 3 2 train {configured('bert')[0]}",
            f"--workdir {workdir}",
        ),
        *steps,
    ]


def find_child(parent, number):
    """Return the pid of process `number` of a run that `local` started, or None."""
    for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if f"JAX_PROCESS_ID={number}".encode() in pathlib.Path(
                f"/proc/{pid}/environ"
            ).read_bytes().split(b"\0"):
                return int(pid)
        except OSError:  # it has just ended
            continue
    return None


def test_a_process_that_is_killed_three_times_costs_three_restarts(
    whole, configured, tmp_path, record_property
):
    done = subprocess.run(
        make_command(configured, tmp_path / "undisturbed"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    supervisor = subprocess.Popen(
        make_command(configured, tmp_path / "run"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for number, step in ((1, 30), (0, 110), (1, 250)):  # the coordinator too
        end = time.monotonic() + 200
        while not any(
            row["step"] >= step
            for row in metrics_file.read_metrics(tmp_path / "run" / "metrics.jsonl")[-1:]
        ):
            assert time.monotonic() < end and supervisor.poll() is None, supervisor.communicate()[0]
            time.sleep(0.01)
        os.kill(find_child(supervisor.pid, number), signal.SIGKILL)
        while (
            (tmp_path / "run" / "metrics.jsonl").exists()
            and supervisor.poll() is None
            and find_child(supervisor.pid, number) is None
        ):
            time.sleep(0.05)
    output, _ = supervisor.communicate(timeout=300)
    assert supervisor.returncode == 0, output
    restart_lines = [
        line for line in output.splitlines() if "restart 1 of at most 3 in a row" in line
    ]  # each start saved a new checkpoint
    assert [line.split()[1:6] for line in restart_lines] == [
        f"process {number} died of SIGKILL;".split() for number in (1, 0, 1)
    ], output
    assert [
        row["step"] for row in metrics_file.read_metrics(tmp_path / "run" / "metrics.jsonl")
    ] == list(range(1, 401))
    assert read_fingerprints(tmp_path / "run", 400) == read_fingerprints(
        tmp_path / "undisturbed", 400
    )
    record_property("kills", 3)
    record_property("restarts", len(restart_lines))
    record_property("ended with the same bits", 1)
