"""A run without an end in a process of its own, its steps and its checkpoints."""

import errno
import io
import os
import subprocess
import sys
import time

from pretrain.workdir.metrics_file import read_metrics
from tests import forks
from tests.faults.conftest import FAULTY

ROOT = FAULTY.parents[2]
ENDLESS = ("train.steps=100000", "checkpoint.every=100000", "evaluate.every=0")


class ClosedPipe(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def list_steps(workdir):
    """Return the logged steps and the saved ones."""
    logged = [row["step"] for row in read_metrics(workdir / "metrics.jsonl")]
    folder = workdir / "checkpoints"
    saved = [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []
    return logged, sorted(saved)


def wait_for_steps(workdir, count, process):
    """Wait until so many steps are logged."""
    end = time.monotonic() + 200
    while len(read_metrics(workdir / "metrics.jsonl")) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def start_endless_run(config, workdir, *words, before=(), verb=(), **options):
    """Return the process of a run that has finished three steps."""
    train = ("train", config, "--workdir", workdir, *ENDLESS, *words)
    process = forks.Popen(
        [*before, sys.executable, "-m", "pretrain", *map(str, (*verb, *train))],
        cwd=ROOT,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True} | options,
    )
    try:
        wait_for_steps(workdir, 3, process)
    except BaseException:
        process.kill()
        raise
    return process


def assert_saved(process, workdir, status):
    """Check that the run ends with `status` and its last step saved; return its output."""
    output = process.communicate(timeout=150)
    assert process.returncode == status, output
    logged, saved = list_steps(workdir)
    assert saved and saved == [logged[-1]], (logged[-3:], saved, output)
    return output
