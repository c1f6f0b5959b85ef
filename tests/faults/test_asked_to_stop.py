"""Row 6: after SIGTERM at any moment no step is lost, the run exits soon with 143, and it resumes
with the same bits.
"""

import re
import signal
import time

import pytest

from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from tests.fingerprints import read_fingerprints

MOMENTS = ("compile:1", "data:5", "step:5", "save:4", "finish:4", "evaluate:6")


@pytest.fixture
def stop_seconds(often):
    """Return the allowed seconds from the end of the current step, or from the second signal, to
    the exit; the machine may be busy.
    """
    return often(60, 5)


def stop_run(fault, configured, command, workdir, soon):
    """Send the signal, once or twice, and return the newest checkpoint, in which every logged step
    is present.
    """
    done = command("train", configured("bert")[0], "--workdir", workdir, fault=fault)
    ended = time.time()
    last = (
        (workdir / "metrics.jsonl").stat().st_mtime if (workdir / "metrics.jsonl").exists() else 0
    )
    signal_times = [
        float(at) for at in re.findall(r"^SIGTERM at (\S+)$", done.stderr, re.MULTILINE)
    ]
    with Checkpoints(workdir, read_only=True) as checkpoints:
        newest = max(checkpoints.list_steps(), default=0)
    rows = [row["step"] for row in metrics_file.read_metrics(workdir / "metrics.jsonl")]
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    if len(signal_times) == 1:
        assert rows == list(range(1, newest + 1)) and f"saved step {newest}" in done.stderr, (
            done.stderr
        )
        assert ended - max(last, *signal_times) < soon
    else:
        assert ended - signal_times[-1] < soon and "saved step" not in done.stderr
    return newest


def test_asked_to_stop_while_it_saves_and_then_twice_while_it_evaluates(
    configured, command, stop_seconds, tmp_path
):
    assert 4 < stop_run("term:finish:4", configured, command, tmp_path / "run", stop_seconds) < 10
    stop_run("twice:evaluate:12", configured, command, tmp_path / "run", stop_seconds)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("moment", MOMENTS)
def test_one_signal_loses_no_step(
    whole, finished, configured, command, stop_seconds, tmp_path, record_property, moment
):
    assert (
        1 <= stop_run(f"term:{moment}", configured, command, tmp_path / "run", stop_seconds) <= 12
    )
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("stopped without losing a step", 1)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_second_signal_ends_it_at_once(
    whole, finished, configured, command, stop_seconds, tmp_path, record_property, moment
):
    """The signal arrives during compilation, when Python itself cannot handle signals."""
    stop_run(f"twice:{moment}", configured, command, tmp_path / "run", stop_seconds)
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("ended at once", 1)


def goes_on(finished, configured, command, workdir):
    done = command("train", configured("bert")[0], "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in metrics_file.read_metrics(workdir / "metrics.jsonl")] == list(
        range(1, 13)
    )
    assert read_fingerprints(workdir, 12) == read_fingerprints(finished[1], 12)
