"""Model state between steps: on lanes, with micro-batches and meshes, skipped steps, evaluations,
kills and restarts.
"""

import dataclasses
from functools import partial

import jax
import numpy as np
import optax
import pytest

from data.composed import ComposedBatches
from data.objectives import CausalLm
from data.pipeline import Stream
from models import build
from pretrain import config
from pretrain.config import AdamW, Mesh, load, to_json
from pretrain.mesh import sharding
from pretrain.mesh.sharding import BATCH, make_mesh
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.optimizers import make_optimizer
from pretrain.training.program import make_program
from pretrain.training.state import init_state
from pretrain.training.step import make_evaluation_fn, make_train_step
from pretrain.workdir.checkpoints import Checkpoints
from tests import recurrent_lm
from tests.pretrain.training.recurrent_runs import check_killed_run, make_run, run_steps
from tests.recurrent_lm import ElmanConfig

LENGTH, ROWS = 6, 8


@pytest.fixture(scope="module", autouse=True)
def registered_model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "SECTION_CLASSES", config.SECTION_CLASSES)
        patch.setattr(sharding, "PARAMETER_DIMENSIONS", sharding.PARAMETER_DIMENSIONS)
        patch.setitem(config.Run.__annotations__, "model", config.Run.__annotations__["model"])
        recurrent_lm.register_model()
        yield


@pytest.fixture(scope="module")
def run(stores):
    objective = CausalLm(length=LENGTH, order="lanes")
    return make_run(ElmanConfig(vocab=256, width=16, dropout=0.1), objective, stores["t5"].path)


@pytest.fixture(scope="module")
def stream(run, stores):
    return Stream(stores["t5"], run.data, seed=0)


@pytest.fixture(scope="module")
def alone(run, stream):
    """Return the state after some steps without dropout on one device."""
    return run_steps(run, stream)


@pytest.fixture(scope="module")
def trained(run, stream):
    """Return the state after some steps with dropout on one device."""
    return run_steps(run, stream, dropout=0.1)


def assert_close(one, other, tolerance=2e-6):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)


def get_memory(state):
    return state.variables["memory"]["state"]


# ---- one step ----------------------------------------------------------------


def test_segments_on_a_lane_are_one_long_row(run, stream):
    """Three batches of lanes equal the rows that they join to, by a loop in NumPy."""
    state = run_steps(run, stream, count=0)
    program_model, params = build(run.model), state.params
    loss, variables, found = find_loss("causal_lm"), state.variables, []

    @jax.jit
    def apply_states(batch, variables):
        return loss.apply_states(program_model, params, batch, variables=variables)

    for step in range(3):
        states, variables = apply_states(stream.build_batch(step), variables)
        found.append(np.asarray(states))
    kernel, recurrent = params["read"], params["hidden"]["kernel"]
    h_BD = np.zeros((ROWS, run.model.width))
    for step in range(3):
        batch = stream.build_batch(step)
        h_BD = np.where(batch["is_continued"][:, None] & (step > 0), h_BD, 0)
        for t in range(LENGTH):
            x_BD = params["token_embedding"]["embedding"][batch["token_ids"][:, t]]
            h_BD = np.tanh(x_BD @ kernel["kernel"] + kernel["bias"] + h_BD @ recurrent)
            np.testing.assert_allclose(found[step][:, t], h_BD, atol=1e-5)
    assert batch["is_continued"].any()


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    "mesh", [{"data": 8}, {"data": 2, "fsdp": 2, "model": 2}, {"fsdp": 4, "data": 2}], ids=str
)
def test_a_mesh_keeps_the_same(run, stream, alone, mesh):
    assert_close(alone, run_steps(run, stream, mesh))
    assert np.abs(get_memory(alone)).max() > 0.1 and int(alone.step) == 3


@pytest.mark.held_by(1)
@pytest.mark.parametrize("mesh", [None, {"data": 2, "fsdp": 1, "model": 4}], ids=str)
def test_micro_batches_keep_the_same(run, stream, alone, mesh):
    parts = run_steps(run, stream, mesh, microbatches=4)
    assert_close(alone, parts)


def test_a_skipped_step_leaves_the_state_unchanged(run, stream):
    model, loss = build(run.model), find_loss("causal_lm")
    step = jax.jit(make_train_step(model, loss, optax.sgd(0.1), lambda n: 0.1, seed=0))
    init = partial(init_state, model, run.data.objective, optax.sgd(0.1), 0, ROWS)
    state, _ = step(jax.jit(init)(), stream.build_batch(0))
    broken = stream.build_batch(1)
    broken["label_weights"] = np.full_like(broken["label_weights"], np.nan)
    after, metrics = step(state, broken)
    assert metrics["skipped"] == 1 and int(after.step) == 2
    for one, other in zip(
        jax.tree.leaves((state.params, state.variables)),
        jax.tree.leaves((after.params, after.variables)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    taken, metrics = step(state, stream.build_batch(1))
    assert not metrics["skipped"] and (get_memory(taken) != get_memory(state)).any()


def test_an_evaluation_begins_from_zero(run, stream, trained):
    model, loss, state = build(run.model), find_loss("causal_lm"), trained
    score = jax.jit(make_evaluation_fn(model, loss))
    batch = stream.build_batch(5)
    sums, *_ = score(state.params, batch)
    again, *_ = score(state.params, batch | {"is_continued": np.zeros(ROWS, bool)})
    passed_on, *_ = score(state.params, batch, state.variables)

    @jax.jit
    def compute_batch(params, batch, variables):
        return loss.compute_batch(model, params, batch, options=LossOptions(), variables=variables)

    carried = compute_batch(state.params, batch, state.variables)
    assert sums["causal_lm"] == again["causal_lm"]
    np.testing.assert_allclose(passed_on["causal_lm"], carried.sums["causal_lm"], rtol=1e-6)
    assert abs(float(carried.sums["causal_lm"]) - float(sums["causal_lm"])) > 1e-3


def test_models_without_state_have_no_variables(runs):
    mesh = make_mesh(Mesh(data=8))
    program = make_program(runs["bert"], mesh)
    assert program.abstract_state.variables == {} and program.state_shardings.variables == {}


def test_shuffled_rows_begin_with_zero_state(run, stream, trained):
    model, loss, state = build(run.model), find_loss("causal_lm"), trained
    batch = {key: value for key, value in stream.build_batch(5).items() if key != "is_continued"}

    @jax.jit
    def compute_sums(params, batch, variables):
        return loss.compute_batch(model, params, batch, variables=variables).sums

    sums = [
        compute_sums(state.params, batch, variables)["causal_lm"]
        for variables in (state.variables, {})
    ]
    assert sums[0] == sums[1]


def test_a_dataset_of_the_user_is_refused_on_lanes(run, stream):
    with pytest.raises(ValueError, match="rows on lanes continue from batch to batch"):
        ComposedBatches(stream, lambda stream, step, lo, hi: stream.make_dataset(step, lo, hi))


# ---- a run -------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "elman.json"
    path.write_text(to_json(run))
    return path


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    "words",
    [("mesh.data=1",), ("mesh.data=2", "mesh.fsdp=4"), ("mesh.data=2", "train.microbatches=2")],
    ids=["one device", "eight", "micro-batches"],
)
def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path, words):
    devices = {"mesh.data=1": 1, "train.microbatches=2": 2}.get(words[-1], 8)
    options = {"devices": devices, "program": "tests.recurrent_lm"}
    found = check_killed_run(run, tmp_path, *words, **options)["variables"]
    assert list(found) == ["memory/state"] and found["memory/state"][:2] == ["float32", [ROWS, 16]]


def test_saved_state_is_checked_and_fits_or_is_refused(saved, tmp_path):
    from pretrain.__main__ import main

    words = ["train", str(saved), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=4"]) == 0
    assert main([*words, "data.batch_size=16", "--allow-changes"]) == 2
    folder = tmp_path / "run" / "checkpoints" / "4" / "variables"
    for path in folder.rglob("d/*"):
        path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))
    assert main([*words, "train.stop_at_step=5"]) in (2, 3)
    assert (tmp_path / "run" / "damaged" / "4").is_dir()


def test_a_rewound_run_begins_with_zero_state(saved, tmp_path, monkeypatch):
    from pretrain.__main__ import main
    from pretrain.training import phase_programs
    from pretrain.training.context import TrainContext

    feed, usual, seen = phase_programs.prefetch_to_devices, TrainContext.restore_last_good, []

    def feed_broken(stream, mesh, start, stop, **options):
        for step, batch in feed(stream, mesh, start, stop, **options):
            poison = jax.numpy.float32(np.nan if step in (5, 6) else 1)
            yield step, batch | {"label_weights": batch["label_weights"] * poison}

    def restore_and_note(context):
        state = usual(context)
        seen.append((int(state.step), np.array(get_memory(state)), get_memory(state).sharding.spec))
        return state

    monkeypatch.setattr(phase_programs, "prefetch_to_devices", feed_broken)
    monkeypatch.setattr(TrainContext, "restore_last_good", restore_and_note)
    words = ["train", str(saved), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "guard.patience=2", "train.stop_at_step=9"]) == 0
    ((step, values, spec),) = seen
    assert step == 7 and values.shape == (ROWS, 16) and not values.any() and spec == BATCH
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        assert (
            checkpoints.load_record(4)["variables"]
            and checkpoints.load_record(9)["rows"] == 9 * ROWS
        )


def test_only_models_that_keep_a_state_are_trained_on_lanes(runs, run):
    from pretrain.config import validate_run
    from pretrain.settings.overrides import ConfigError

    wrong = dataclasses.replace(runs["gpt3"], data=run.data)
    with pytest.raises(ConfigError, match="order=lanes is for models that carry a state"):
        validate_run(wrong)
    validate_run(run)
    with pytest.raises(ConfigError, match="order=lanes is for models that carry a state"):
        load("xlnet_tiny", ["data.objective.order=lanes"])
    assert load("xlnet_tiny", ["model.memory=32", "data.objective.order=lanes"]).model.memory == 32


def test_a_state_carries_over_from_the_row_before(run):
    """The last token of every second row is the first token of the row before it on its lane."""
    rng = np.random.default_rng(0)
    first_B = rng.integers(5, 9, 64)

    adam = make_optimizer(AdamW(learning_rate=0.03, warmup_steps=1, decay_steps=9999), 200)

    def loss_after(memory):
        model, loss = build(dataclasses.replace(run.model, dropout=0.0)), find_loss("causal_lm")
        step = jax.jit(make_train_step(model, loss, adam, lambda n: 0.03, seed=0))
        init = partial(init_state, model, run.data.objective, adam, 0, 64)
        state, losses = jax.jit(init)(), []
        for number in range(120):
            half = number % 2
            tokens = np.full((64, 6), 3)
            labels = np.full((64, 6), 3)
            if half == 0:
                tokens[:, 0] = first_B
            else:
                labels[:, 5] = first_B
            weights = np.zeros((64, 6), np.float32)
            weights[:, 5] = half
            weights[0, 0] = 1 - half
            batch = {
                "token_ids": tokens.astype(np.int32),
                "labels": labels.astype(np.int32),
                "label_weights": weights,
                "is_continued": np.full(64, bool(memory and half)),
            }
            state, metrics = step(state, batch)
            if half:
                losses.append(float(metrics["causal_lm"]))
        return np.mean(losses[-5:])

    assert loss_after(memory=True) < 0.5 < 1.2 < loss_after(memory=False)
