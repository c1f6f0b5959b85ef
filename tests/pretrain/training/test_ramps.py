"""Training through ramps: the batch, the temperature, the masks and the weight decay together."""

import signal

import numpy as np
import pytest

from pretrain.config import Mesh, load, to_json
from pretrain.mesh.sharding import make_mesh
from pretrain.phases import resolve_phases
from pretrain.settings.overrides import ConfigError
from pretrain.training import phase_programs
from pretrain.training.loop import train
from pretrain.training.phase_programs import check_batches
from pretrain.training.schedules import make_learning_rate
from pretrain.workdir import environment_file, metrics_file
from pretrain.workdir.trained import open_trained
from tests import forks
from tests.pretrain.training.recurrent_runs import train_run
from tests.pretrain.training.test_loop import kill_after, read_rows
from tests.pretrain.training.test_phase_programs import read_record

# Batches of 8 rows up to step 3, of 16 from step 4; a temperature that changes after each step.
WORDS = [
    *("evaluate.every=0", "checkpoint.every=100", "checkpoint.keep=10", "train.steps=7"),
    *("data.objective=MaskedLm", "data.objective.length=32", "data.objective.max_predictions=6"),
    *("data.batch_size=16", "data.batch_ramp.start=8", "data.batch_ramp.steps=3"),
    *("data.temperature_ramp.start=0.5", "data.temperature_ramp.last_step=6"),
    *("data.objective.mask_ramp.start=0.1", "data.objective.mask_ramp.last_step=5"),
    *("optimizer.weight_decay_ramp.start=0.5", "optimizer.weight_decay_ramp.last_step=6"),
]
LAST = 7


@pytest.fixture(scope="module")
def path(configs, tmp_path_factory):
    path = tmp_path_factory.mktemp("ramps") / "run.json"
    path.write_text(to_json(load(configs["bert"], WORDS)))
    return path


@pytest.fixture(scope="module")
def whole(path, tmp_path_factory):
    """Return (workdir of a run that nobody disturbed, shapes of the programs that it made)."""
    workdir, shapes = tmp_path_factory.mktemp("whole") / "run", []
    usual = phase_programs.choose_program

    def choose(*args):
        program = usual(*args)
        shapes.append(program.batch["token_ids"].shape)
        return program

    phase_programs.choose_program = choose
    try:
        assert train(load(path), workdir) is None
    finally:
        phase_programs.choose_program = usual
    return workdir, shapes


def test_each_size_of_the_batch_is_one_program_under_one_schedule(whole, path):
    workdir, shapes = whole
    run = load(path)
    assert len(resolve_phases(run)) == LAST and [shape[0] for shape in shapes] == [8, 16]
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")
    expected = make_learning_rate(run.optimizer, LAST)(np.arange(LAST))
    np.testing.assert_allclose([row["learning_rate"] for row in rows], expected, rtol=1e-6)
    tokens = [row["tokens"] for row in rows]
    assert max(tokens[:3]) < min(tokens[3:]) and not any("phase" in row for row in rows)
    assert read_record(workdir, LAST)["rows"] == 3 * 8 + 4 * 16
    assert open_trained(workdir).run.data.batch_size == 16
    # The report divides a step's FLOPs by its time with the FLOPs of its own batch.
    phases = environment_file.read_starts(workdir)[-1]["phases"]
    assert [phase["stop"] for phase in phases] == list(range(1, LAST + 1))
    assert phases[3]["flops_per_step"] == 2 * phases[2]["flops_per_step"]


@pytest.mark.parametrize("step", [4, 2, 3])
@pytest.mark.held_by(1)
def test_a_run_that_stopped_within_its_ramps_ends_with_the_same_bits(whole, path, tmp_path, step):
    workdir = tmp_path / "run"
    train(load(path, [f"train.stop_at_step={step}"]), workdir)
    train(load(path), workdir)
    expected = read_record(whole[0], LAST)
    for key in ("params", "optimizer", "rows"):
        assert read_record(workdir, LAST)[key] == expected[key]
    assert read_rows(workdir) == read_rows(whole[0])


@pytest.mark.more
def test_a_run_that_was_killed_within_its_ramps_ends_with_the_same_bits(path, tmp_path):
    """The process ends after step 2, and after step 3, the last of the smaller batch."""
    forks.prepare_server()
    train_run(path, tmp_path / "whole", "checkpoint.every=1")
    workdir = tmp_path / "run"
    for step in (2, 3):
        process = train_run(path, workdir, "checkpoint.every=1", popen=True)
        kill_after(process, workdir, step)
        assert process.returncode == -signal.SIGKILL
    train_run(path, workdir, "checkpoint.every=1")
    for key in ("params", "optimizer", "rows"):
        assert read_record(workdir, LAST)[key] == read_record(tmp_path / "whole", LAST)[key]
    assert read_rows(workdir) == read_rows(tmp_path / "whole")


def test_a_ramp_that_trained_cannot_change_and_one_to_come_can(path, tmp_path):
    workdir = tmp_path / "run"
    train(load(path, ["train.stop_at_step=2"]), workdir)
    longer = load(path, ["data.batch_ramp.steps=4"])
    with pytest.raises(ConfigError, match="data.batch_ramp.steps: 3 -> 4"):
        train(longer, workdir)
    train(longer, workdir, allow_changes=True)
    assert read_record(workdir, LAST)["rows"] == 4 * 8 + 3 * 16
    other = load(path, ["data.batch_size=32"])
    with pytest.raises(ConfigError, match="the stair of data.batch_size=8 .* cannot change"):
        train(other, workdir, allow_changes=True)


def test_a_size_that_devices_do_not_divide_is_refused_by_its_stair(path):
    run = load(path, ["data.batch_ramp.start=4", "data.batch_ramp.rise=12"])
    message = r"the stair of data.batch_size=4 .*: data.batch_size=4 does not divide into"
    with pytest.raises(ConfigError, match=message):
        check_batches(run, make_mesh(Mesh()))
    run = load(path, ["train.microbatches=2"])
    with pytest.raises(ConfigError, match="data.batch_size=8 does not divide into"):
        check_batches(run, make_mesh(Mesh()))
