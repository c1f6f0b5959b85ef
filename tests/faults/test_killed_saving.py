"""Row 4: after a kill while a checkpoint is written or renamed, or older ones are deleted, the
newest committed one is sound.
"""

import random
import signal

import pytest

from pretrain.workdir.checkpoints import Checkpoints
from tests.fingerprints import read_fingerprints

WINDOWS = {
    "save": 0.3,
    "finish": 0.1,
    "delete": 0.03,
}  # delays of the kill after each moment, in seconds


def find_newest(workdir, run, restorable):
    """Return the newest committed step, restored and compared with its record; 0 if there is none."""
    shapes, placed = restorable(run)
    with Checkpoints(workdir, read_only=True) as checkpoints:
        for step in checkpoints.list_steps():
            checkpoints.restore_step(step, shapes, placed, None)
            return step
    return 0


def list_litter(workdir):
    return [path.name for path in (workdir / "checkpoints").iterdir() if not path.name.isdecimal()]


def test_kills_while_a_checkpoint_is_committed_and_an_old_one_deleted(
    often, finished, configured, restorable, command, tmp_path
):
    path, run, _ = configured("bert")
    words = ("train", path, "--workdir", tmp_path / "run", "checkpoint.keep=1", "evaluate.every=0")
    for every, fault, step in ((2, "kill:finish:4", 2), (3, "kill:delete:9", 9))[
        : often(1, 2)
    ]:  # so files of step 4 are not overwritten later
        assert (
            command(*words, f"checkpoint.every={every}", fault=fault).returncode == -signal.SIGKILL
        )
        assert find_newest(tmp_path / "run", run, restorable) == step
        assert bool(list_litter(tmp_path / "run")) == (step == 2)
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["12"]
    assert read_fingerprints(tmp_path / "run", 12) == read_fingerprints(finished[1], 12)


@pytest.fixture(scope="module")
def every_step(whole, configured, command, tmp_path_factory):
    """Return the workdir of an uninterrupted run with a checkpoint of each step."""
    workdir = tmp_path_factory.mktemp("every") / "run"
    done = command(*words_of(configured, workdir), "checkpoint.keep=100")
    assert done.returncode == 0, done.stderr
    return workdir


def words_of(configured, workdir):
    return (
        "train",
        configured("bert")[0],
        "--workdir",
        workdir,
        "train.steps=64",
        "checkpoint.every=1",
        "evaluate.every=0",
    )


@pytest.mark.more
def test_thirty_kills_in_a_row(
    every_step, configured, restorable, command, tmp_path, record_property
):
    """One run, killed thirty times during a save, always resumes from the last committed
    checkpoint.
    """
    rng, run, workdir = random.Random("killed saving"), configured("bert")[1], tmp_path / "run"
    words = (*words_of(configured, workdir), "checkpoint.keep=2")
    at = left = 0
    for _ in range(30):
        moment = rng.choice(sorted(WINDOWS))
        fault = f"kill:{moment}:{at + 2}:{rng.uniform(0, WINDOWS[moment]):.4f}"
        assert command(*words, fault=fault).returncode == -signal.SIGKILL, fault
        before, at = at, find_newest(workdir, run, restorable)
        assert at >= before, f"{fault}: from {before} to {at}"
        assert read_fingerprints(workdir, at) == read_fingerprints(every_step, at), fault
        left += bool(list_litter(workdir))
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert list_litter(workdir) == [] and not (workdir / "damaged").exists()
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert checkpoints.list_steps() == [64, 63]
    assert read_fingerprints(workdir, 64) == read_fingerprints(every_step, 64)
    record_property("killed", 30)
    record_property("restored from the newest committed step", 30)
    record_property("kills that left a half-written folder", left)
    record_property("such folders at the end", 0)
