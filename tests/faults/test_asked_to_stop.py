"""Row 6: SIGTERM, whatever the run does just then: no step is lost, it leaves soon, with 143, and goes on with the same bits."""

import re
import signal
import time

import pytest

from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints

MOMENTS = ("compile:1", "data:5", "step:5", "save:4", "finish:4", "evaluate:6")


def leaves(workdir):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.record(12)
    return record["params"], record["optimizer"]


@pytest.fixture
def soon(often):
    """Seconds from the end of the step at hand, or from the second signal, to the end of the process: the suite may run on a busy machine."""
    return often(60, 5)


def stop(fault, configured, command, workdir, soon):
    """The newest checkpoint of a run that gets the signal, in which every step is that it told of; or the signal twice."""
    done = command("train", configured("bert")[0], "--workdir", workdir, fault=fault)
    ended = time.time()
    last = (
        (workdir / "metrics.jsonl").stat().st_mtime if (workdir / "metrics.jsonl").exists() else 0
    )
    told = [float(at) for at in re.findall(r"^SIGTERM at (\S+)$", done.stderr, re.MULTILINE)]
    with Checkpoints(workdir, read_only=True) as checkpoints:
        newest = max(checkpoints.steps(), default=0)
    rows = [row["step"] for row in metrics_file.read(workdir / "metrics.jsonl")]
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    if len(told) == 1:
        assert rows == list(range(1, newest + 1)) and f"saved step {newest}" in done.stderr, (
            done.stderr
        )
        assert ended - max(last, *told) < soon
    else:
        assert ended - told[-1] < soon and "saved step" not in done.stderr
    return newest


def test_asked_to_stop_while_it_saves_and_then_twice_while_it_evaluates(
    configured, command, soon, tmp_path
):
    assert 4 < stop("term:finish:4", configured, command, tmp_path / "run", soon) < 10
    stop("twice:evaluate:12", configured, command, tmp_path / "run", soon)


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_signal_loses_no_step(
    whole, finished, configured, command, soon, tmp_path, record_property, moment
):
    assert 1 <= stop(f"term:{moment}", configured, command, tmp_path / "run", soon) <= 12
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("stopped without losing a step", 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_second_signal_ends_it_at_once(
    whole, finished, configured, command, soon, tmp_path, record_property, moment
):
    """While it compiles, too, where Python itself does not come to hear of a signal."""
    stop(f"twice:{moment}", configured, command, tmp_path / "run", soon)
    goes_on(finished, configured, command, tmp_path / "run")
    record_property("ended at once", 1)


def goes_on(finished, configured, command, workdir):
    done = command("train", configured("bert")[0], "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in metrics_file.read(workdir / "metrics.jsonl")] == list(
        range(1, 13)
    )
    assert leaves(workdir) == leaves(finished[1])
