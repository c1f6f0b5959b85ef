"""A checkpoint that is read while `train` runs stays until it is read, or a newer one is read."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from etils import epath
from orbax.checkpoint._src.path.step import Metadata as StepMetadata

from pretrain.settings import Checkpoint
from pretrain.workdir import read_params, reader_pins
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored
from pretrain.workdir.read_params import restore_params
from pretrain.workdir.reader_pins import list_pinned_steps, pin_step
from pretrain.workdir.retention import Retention
from tests.pretrain.workdir.test_checkpoints import make_state

HOLD_A_PIN = """
import sys, time
from pretrain.workdir.reader_pins import pin_step
with pin_step(sys.argv[1], 3):
    print("pinned", flush=True)
    time.sleep(600)
"""


def list_dotfiles(folder):
    return [name for name in os.listdir(folder) if name.startswith(".reading")]


@pytest.mark.fast
def test_a_pinned_step_stays_while_it_is_read(tmp_path):
    retention = Retention(Checkpoint(keep=1), epath.Path(tmp_path))
    steps = [SimpleNamespace(step=step) for step in (1, 2, 3)]
    with pin_step(tmp_path, 1), pin_step(tmp_path, 1):
        assert retention.should_preserve(steps) == [True, False, True]
        assert len(list_dotfiles(tmp_path)) == 2
    assert retention.should_preserve(steps) == [False, False, True]
    assert not list_dotfiles(tmp_path)


@pytest.mark.fast
def test_a_killed_reader_pins_nothing(tmp_path):
    command = [sys.executable, "-c", HOLD_A_PIN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == b"pinned\n"
        assert list_pinned_steps(tmp_path) == {3}
        reader.kill()
    assert len(list_dotfiles(tmp_path)) == 1
    assert list_pinned_steps(tmp_path) == set()
    assert not list_dotfiles(tmp_path)


@pytest.mark.fast
def test_names_of_others_are_left_alone(tmp_path):
    names = (".reading.x", ".reading.3.zz", f".reading.{'9' * 40}.{'0' * 32}", ".reading.")
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".reading.4.{'0' * 32}").symlink_to("/etc/hostname")
    assert list_pinned_steps(tmp_path) == set()
    assert set(names) < set(list_dotfiles(tmp_path))
    assert os.path.exists("/etc/hostname")


@pytest.mark.fast
def test_without_locks_nothing_is_pinned_and_reading_goes_on(tmp_path, monkeypatch):
    def refuse(file, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(reader_pins.fcntl, "flock", refuse)
    with pin_step(tmp_path, 1):
        assert not list_dotfiles(tmp_path)


class Saver(threading.Thread):
    """Save step after step with `checkpoint.keep=1`, as a fast run does."""

    def __init__(self, workdir, run, state, pause):
        super().__init__(daemon=True)
        self.workdir, self.run_config, self.state, self.pause = workdir, run, state, pause
        self.stopped, self.saved = threading.Event(), 0

    def run(self):
        with Checkpoints(self.workdir, Checkpoint(keep=1)) as checkpoints:
            for step in range(100, 10_000):
                state = self.state.replace(step=np.asarray(step, np.int32))
                checkpoints.save(state, self.run_config, "vocabulary")
                checkpoints.wait_until_saved()
                self.saved += 1
                if self.stopped.wait(self.pause):
                    return


@pytest.fixture
def saver(tmp_path, module_run):
    state = make_state(module_run, 100)
    saver = Saver(tmp_path / "run", module_run, state, 0.01)
    saver.start()
    while not saver.saved:
        time.sleep(0.05)
    yield saver
    saver.stopped.set()
    saver.join(60)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("can_pin", [True, False])
@pytest.mark.slow
def test_every_read_beside_saves_succeeds(saver, can_pin, monkeypatch):
    """30 reads; without pins (a folder that cannot be written) a newer checkpoint is read."""
    if not can_pin:
        monkeypatch.setattr(read_params, "pin_step", lambda *_: contextlib.nullcontext())
    expected = jax.tree.map(np.asarray, saver.state.params)
    before, lines = saver.saved, []
    for _ in range(30):
        _, step, params = restore_params(saver.workdir, report=lines.append)
        assert step >= 100
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(params), expected)
    assert not lines
    assert saver.saved > before + 3
    assert not list_dotfiles(saver.workdir)


@pytest.mark.parametrize("error", [FileNotFoundError, NotADirectoryError])
@pytest.mark.slow
def test_a_step_that_vanishes_while_steps_are_listed_is_no_error(saver, error, monkeypatch):
    saver.stopped.set()
    saver.join(60)
    read, failures = StepMetadata._checkpoint_metadata.func, iter(range(3))

    def read_or_fail(metadata):
        if next(failures, None) is not None:
            raise error(metadata.path)
        return read(metadata)

    monkeypatch.setattr(StepMetadata, "_checkpoint_metadata", property(read_or_fail))
    with Checkpoints(saver.workdir, read_only=True) as checkpoints:
        assert len(checkpoints.list_steps()) == 1
    assert next(failures, None) is None


@pytest.mark.slow
def test_a_damaged_checkpoint_is_still_called_so(saver):
    saver.stopped.set()
    saver.join(60)
    (folder,) = (saver.workdir / "checkpoints").iterdir()
    shutil.rmtree(folder / "params")
    with pytest.raises(DamagedCheckpoint, match="params is missing"):
        restore_params(saver.workdir, step=int(folder.name))
    with pytest.raises(DamagedCheckpoint, match="none of the checkpoints"):
        restore_params(saver.workdir, report=lambda line: None)


@pytest.mark.slow
def test_a_folder_named_after_another_step_is_refused(saver):
    saver.stopped.set()
    saver.join(60)
    (folder,) = (saver.workdir / "checkpoints").iterdir()
    shutil.copytree(folder, folder.with_name("90000"))
    lines = []
    _, step, _ = restore_params(saver.workdir, report=lines.append)
    assert step == int(folder.name)
    assert len(lines) == 1 and f"is named 90000, its record is of step {step}" in lines[0]


@pytest.mark.slow
def test_a_run_that_deletes_all_that_is_read_is_named(saver, monkeypatch):
    monkeypatch.setattr(read_params, "ATTEMPTS", 3)

    def delete(self, step, choose_sharding):
        while (self.workdir / "checkpoints" / str(step)).exists():
            time.sleep(0.01)
        raise NotRestored("gone")

    monkeypatch.setattr(read_params, "pin_step", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(Checkpoints, "restore_params", delete)
    with pytest.raises(NotRestored, match="deleted 3 checkpoints in a row"):
        restore_params(saver.workdir)
