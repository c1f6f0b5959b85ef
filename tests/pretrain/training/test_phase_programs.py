"""Training through phases: programs, rates, rows, restarts and what is refused."""

import dataclasses
import json
import signal

import jax
import numpy as np
import pytest

from data.mixed import Mixed, MixedPart
from data.objectives.causal_lm import CausalLm
from data.objectives.masked_lm import MaskedLm
from data.store.kinds import open_source
from pretrain.__main__ import main
from pretrain.config import AdamW, Mesh, load, to_json
from pretrain.mesh.sharding import make_mesh
from pretrain.phases import open_streams, resolve_phases
from pretrain.settings.overrides import ConfigError
from pretrain.training import phase_programs
from pretrain.training.fits.phase_shapes import find_shapes, level_mask_rate
from pretrain.training.loop import train
from pretrain.training.phase_programs import check_batches, check_programs, join_rates
from pretrain.training.program import make_program
from pretrain.training.schedules import make_learning_rate
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.trained import open_trained
from tests import forks
from tests.pretrain.training.recurrent_runs import train_run
from tests.pretrain.training.test_loop import kill_after, read_rows

# Rows of 16, then of 32 in half as many rows, and a last phase that computes the same as it, with
# fewer masks in its rows.
WORDS = [
    *("evaluate.every=0", "checkpoint.every=100", "checkpoint.keep=10", "data.batch_size=16"),
    *("phases.short.steps=3", "phases.short.data.objective.length=16"),
    *("phases.short.data.objective.max_predictions=3", "phases.long.tokens=1e3"),
    *("phases.long.data.batch_size=8", "phases.end.steps=2", "phases.end.data.batch_size=8"),
    *("phases.end.optimizer.learning_rate=1e-3", "phases.end.data.objective.mask_rate=0.1"),
]
LAST = 9


@pytest.fixture(scope="module")
def path(configs, tmp_path_factory):
    """Return the path of a saved run with phases: 3 steps, 4 steps and 2 steps."""
    run = load(configs["bert"], WORDS)
    assert [phase.stop for phase in resolve_phases(run)] == [3, 7, LAST]
    path = tmp_path_factory.mktemp("phases") / "run.json"
    path.write_text(to_json(run))
    return path


def read_record(workdir, step=LAST):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return checkpoints.load_record(step)


@pytest.fixture(scope="module")
def whole(path, tmp_path_factory):
    """Return (workdir of a run that nobody disturbed, number of programs that it made)."""
    workdir, made, usual = (
        tmp_path_factory.mktemp("whole") / "run",
        [],
        phase_programs.choose_program,
    )

    def choose(*args):
        made.append(usual(*args))
        return made[-1]

    phase_programs.choose_program = choose
    try:
        assert train(load(path), workdir) is None
    finally:
        phase_programs.choose_program = usual
    return workdir, made


def test_one_command_trains_all_phases_and_compiles_each_shape_once(whole):
    workdir, made = whole
    assert [program.batch["token_ids"].shape for program in made] == [(16, 16), (8, 32)]
    assert [program.train_step._cache_size() for program in made] == [1, 1]
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")
    names = ["short"] * 3 + ["long"] * 4 + ["end"] * 2
    assert [(row["step"], row["phase"]) for row in rows] == [*zip(range(1, LAST + 1), names)]
    # The state goes on: the loss of the second phase begins where the first has ended.
    assert abs(rows[3]["loss"] - rows[2]["loss"]) < 0.5 < rows[0]["loss"] - rows[-1]["loss"]


def test_each_phase_has_the_schedule_of_its_own_steps(whole, path):
    workdir, _ = whole
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")
    for phase in resolve_phases(load(path)):
        expected = make_learning_rate(phase.run.optimizer, phase.steps)(np.arange(phase.steps))
        found = [row["learning_rate"] for row in rows[phase.start : phase.stop]]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert rows[7]["learning_rate"] == pytest.approx(1e-3 / 1)  # a warm-up of at most 1 of 2 steps
    rate = join_rates(resolve_phases(load(path)))
    assert float(rate(100)) == float(rate(LAST)) == 0


def test_rows_and_record_follow_from_the_lengths(whole, path):
    workdir, _ = whole
    assert read_record(workdir)["rows"] == 3 * 16 + 4 * 8 + 2 * 8
    last = resolve_phases(load(path))[-1]
    assert last.rows_before == 80


@pytest.mark.parametrize("step", [3, 4, 2, 7])
@pytest.mark.held_by(1)
def test_a_run_that_stopped_at_or_around_a_boundary_ends_with_the_same_bits(
    whole, path, tmp_path, step
):
    workdir = tmp_path / "run"
    train(load(path, [f"train.stop_at_step={step}"]), workdir)
    train(load(path), workdir)
    expected = read_record(whole[0])
    for key in ("params", "optimizer", "rows"):
        assert read_record(workdir)[key] == expected[key]
    assert read_rows(workdir) == read_rows(whole[0])


def test_a_run_that_was_killed_twice_ends_with_the_same_bits(path, tmp_path):
    """The process ends after step 3, the last of its phase, and again within the second phase."""
    forks.prepare_server()
    train_run(path, tmp_path / "whole", "checkpoint.every=1")
    workdir = tmp_path / "run"
    for step in (3, 5):
        process = train_run(path, workdir, "checkpoint.every=1", popen=True)
        kill_after(process, workdir, step)
        assert process.returncode == -signal.SIGKILL
    train_run(path, workdir, "checkpoint.every=1")
    for key in ("params", "optimizer", "rows"):
        assert read_record(workdir)[key] == read_record(tmp_path / "whole")[key]
    assert read_rows(workdir) == read_rows(tmp_path / "whole")


def test_a_checkpoint_is_read_with_the_settings_of_the_phase_that_made_it(whole, capsys):
    workdir, _ = whole
    trained = open_trained(workdir)
    assert trained.run.data.batch_size == 8 and trained.run.optimizer.learning_rate == 1e-3
    assert trained.run.train.steps == LAST and not trained.run.phases
    assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == LAST


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("phases.end.model.depth=1", "phases.end: params/.* a phase cannot change their shapes"),
        ("phases.end.model.length=16", "phases.end: rows of 32 tokens are longer than the model's"),
        ("phases.end.data.objective.length=64", "phases.end: rows of 64 tokens are longer"),
        ("phases.end.optimizer.scale_by_param_rms=true", "phases.end: optimizer/.* cannot change"),
    ],
)
def test_a_phase_that_one_state_does_not_fit_is_refused_before_anything_is_compiled(
    path, words, message
):
    mesh = make_mesh(Mesh())
    with pytest.raises(ConfigError, match=message):
        check_programs(resolve_phases(load(path, [words])), mesh)


def test_a_batch_that_devices_do_not_divide_is_refused_by_its_phase(path):
    run = load(path, ["phases.end.data.batch_size=12"])
    with pytest.raises(ConfigError, match=r"phases.end: data.batch_size=12 does not divide"):
        check_batches(run, make_mesh(Mesh()))


def test_only_phases_to_come_may_change(path, tmp_path, capsys):
    workdir = tmp_path / "run"
    run = load(path, ["train.stop_at_step=4"])
    train(run, workdir)
    other = load(path, ["phases.end.steps=1", "phases.end.optimizer.learning_rate=2e-3"])
    with pytest.raises(ConfigError, match="phases.end.*add --allow-changes"):
        train(other, workdir)
    for word in ("phases.short.steps=2", "phases.short.data.batch_size=8"):
        with pytest.raises(ConfigError, match="phases.short has trained up to step 3"):
            train(load(path, [word]), workdir, allow_changes=True)
    assert train(other, workdir, allow_changes=True) is None
    assert "changed on continuing: phases.end.steps: 2 -> 1" in capsys.readouterr().out
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")
    assert len(rows) == 8 and rows[-1]["learning_rate"] == pytest.approx(2e-3)


def test_the_first_row_of_a_phase_follows_from_the_phases_before_it(path):
    run = load(path)
    phases = resolve_phases(run)
    streams = open_streams(open_source(run.data.store), phases, "train")
    for phase, stream in zip(phases, streams):
        assert stream.locate_rows(phase.start) == phase.rows_before


def test_phases_differ_in_optimizer_settings_other_than_the_rate_by_a_program_of_their_own(path):
    run = load(path, ["phases.end.optimizer.weight_decay=0.3"])
    long, end = resolve_phases(run)[1:]
    assert isinstance(run.optimizer, AdamW)
    assert find_shapes(long.run) != find_shapes(end.run)
    same = dataclasses.replace(end.run, optimizer=long.run.optimizer)
    assert find_shapes(long.run) == find_shapes(same)


def test_phases_of_other_mask_rates_share_a_program_unless_shapes_or_losses_differ(path):
    """Any mask rate gives the same step, traced; more predictions are another shape."""
    run = load(path)
    long, end = (phase.run for phase in resolve_phases(run)[1:])
    assert long.data.objective.mask_rate != end.data.objective.mask_rate
    assert find_shapes(long) == find_shapes(end)
    texts = set()
    for own in (long, end):
        program = make_program(own, make_mesh(Mesh(1), jax.devices()[:1]), rate=lambda step: 0.1)
        texts.add(str(program.train_step.trace(program.describe_state(), program.batch).jaxpr))
    assert len(texts) == 1
    more = load(path, ["phases.end.data.objective.max_predictions=7"])
    assert find_shapes(resolve_phases(more)[-1].run) != (find_shapes(long))


class PlacedByRate(MaskedLm):
    """An objective whose batches have room for as many masks as its rate asks for."""

    def axis_sizes(self):
        return super().axis_sizes() | {"P": round(self.mask_rate * self.length)}


def test_a_rate_that_decides_shapes_is_left_as_it_is():
    for rate in (0.15, 0.3):
        objective = MaskedLm(mask_rate=rate)
        assert level_mask_rate(objective) == MaskedLm()
        placed = PlacedByRate(mask_rate=rate)
        assert level_mask_rate(placed) == placed
    assert level_mask_rate(CausalLm()) == CausalLm()
    parts = MixedPart("a", MaskedLm(mask_rate=0.3)), MixedPart("b", CausalLm())
    assert level_mask_rate(Mixed(parts)) == Mixed((MixedPart("a", MaskedLm()), parts[1]))
