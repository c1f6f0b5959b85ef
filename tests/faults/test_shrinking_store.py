"""Row 36: a store that shrinks under a run ends it with one line, and what is sound is saved."""

import os
import signal
import sys

import pytest

from pretrain.training.context import TrainContext
from pretrain.training.loop import train
from tests.faults.conftest import write_config
from tests.faults.running import (
    ClosedPipe,
    assert_saved,
    list_steps,
    start_endless_run,
    wait_for_steps,
)
from tests.store_files import generation_folder


@pytest.fixture
def small(tmp_path):
    """Return (path of a configuration, its Run, the folder of its store, which a test may cut)."""
    path, run, store = write_config(tmp_path, "bert")
    return path, run, generation_folder(store.path)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("verb", [(), ("local", "2")], ids=["alone", "two processes"])
def test_a_run_ends_with_a_line_and_saves(request, small, tmp_path, record_property, verb):
    if verb:
        request.getfixturevalue("whole")
    path, _, folder = small
    tokens, workdir = folder / "train" / "tokens.bin", tmp_path / "run"
    content = tokens.read_bytes()
    words = ("mesh.data=2",) if verb else ()
    process = start_endless_run(path, workdir, *words, verb=verb)
    os.truncate(tokens, 100)
    output = "".join(filter(None, assert_saved(process, workdir, 2)))
    if not verb:
        (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
        assert f"{tokens} has 100 bytes, and had {len(content):,}" in line
    tokens.write_bytes(content)
    if not verb:
        (step,) = list_steps(workdir)[1]
        again = start_endless_run(path, workdir)
        wait_for_steps(workdir, step + 3, again)
        again.send_signal(signal.SIGTERM)
        again.communicate(timeout=100)
        logged, _ = list_steps(workdir)
        assert logged == list(range(1, logged[-1] + 1)) and logged[-1] > step
    record_property("shrinking stores told", 1)


@pytest.mark.more
def test_a_shrinking_store_whose_damage_is_skipped(small, tmp_path):
    path, _, folder = small
    with open(folder / "train" / "tokens.bin", "r+b") as file:
        file.write(b"\0\0\1\0")
    workdir = tmp_path / "run"
    process = start_endless_run(path, workdir, "data.on_corrupt=skip")
    os.truncate(folder / "train" / "tokens.bin", 8)
    _, errors = assert_saved(process, workdir, 2)
    assert f"error: {folder / 'train' / 'tokens.bin'} has 8 bytes" in errors


def test_held_out_rows_that_shrink(small, tmp_path, monkeypatch):
    """The evaluation after step 6 fails; the steps since the checkpoint of step 4 are not lost.

    Without a terminal the workdir has the error.
    """
    monkeypatch.setattr(sys, "stderr", ClosedPipe())
    _, run, folder = small
    evaluate = TrainContext.evaluate_heldout

    def cut_and_evaluate(context, params, step):
        os.truncate(folder / "heldout" / "tokens.bin", 10)
        return evaluate(context, params, step)

    monkeypatch.setattr(TrainContext, "evaluate_heldout", cut_and_evaluate)
    with pytest.raises(ValueError, match=r"heldout/tokens.bin has 10 bytes"):
        train(run, tmp_path / "run")
    assert list_steps(tmp_path / "run") == ([1, 2, 3, 4, 5, 6], [4, 6])
    lost, error = (tmp_path / "run" / "lost_output-0.txt").read_text().splitlines()
    assert "standard error is lost (Broken pipe)" in lost
    assert "after step 6: the run ends with ValueError: " in error and "has 10 bytes" in error
