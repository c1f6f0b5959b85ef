"""Row 6: SIGTERM, whatever the run does just then: no step is lost, it leaves soon, with 143, and goes on with the same bits."""

import re
import signal
import time

import pytest

from pretrain import metrics
from pretrain.checkpoint import Checkpoints

SOON = 5  # seconds from the end of the step at hand, or from the second signal
MOMENTS = ("compile:1", "data:5", "step:5", "save:8", "finish:8", "evaluate:6")


def leaves(workdir):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.record(12)
    return record["params"], record["optimizer"]


def stop(fault, configured, command, workdir):
    """(exit status, the newest checkpoint) of a run that gets the signal; every step that it told of is in the checkpoint."""
    done = command("train", configured("bert")[0], "--workdir", workdir, fault=fault)
    ended = time.time()
    last = (workdir / "metrics.jsonl").stat().st_mtime if (workdir / "metrics.jsonl").exists() else 0
    told = [float(at) for at in re.findall(r"^SIGTERM at (\S+)$", done.stderr, re.MULTILINE)]
    with Checkpoints(workdir, read_only=True) as checkpoints:
        newest = max(checkpoints.steps(), default=0)
    rows = [row["step"] for row in metrics.read(workdir / "metrics.jsonl")]
    if done.returncode == 128 + signal.SIGTERM:
        assert rows == list(range(1, newest + 1)) and f"saved step {newest}" in done.stderr, done.stderr
        assert ended - max(last, *told) < SOON
    else:
        assert ended - told[-1] < SOON
    return done.returncode, newest


def test_asked_to_stop_while_it_saves_and_again_while_it_evaluates(configured, command, tmp_path):
    assert stop("term:finish:4", configured, command, tmp_path / "run")[0] == 143
    status, step = stop("term:evaluate:6", configured, command, tmp_path / "run")
    assert (status, step) == (143, 6)


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_signal_loses_no_step(whole, finished, configured, command, tmp_path, record_property, moment):
    status, step = stop(f"term:{moment}", configured, command, tmp_path / "run")
    assert status == 128 + signal.SIGTERM and 1 <= step <= 12
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("stopped without losing a step", 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_second_signal_ends_it_at_once(whole, finished, configured, command, tmp_path, record_property, moment):
    """Or, where the compiler does not let Python hear of the first before the second, as one does."""
    status, _ = stop(f"twice:{moment}", configured, command, tmp_path / "run")
    assert status in (-signal.SIGTERM, 128 + signal.SIGTERM)  # a shell calls both 143
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("ended at once" if status < 0 else "stopped without losing a step", 1)


def goes_on(finished, configured, command, workdir):
    done = command("train", configured("bert")[0], "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in metrics.read(workdir / "metrics.jsonl")] == list(range(1, 13))
    assert leaves(workdir) == leaves(finished[1])
