"""A bad step changes nothing; many in a row are skipped over, with the same result however often
the run is stopped.
"""

import dataclasses
import json
import math
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.config import Adafactor, AdamW, Lamb, load
from pretrain.mesh.device_feed import prefetch_to_devices
from pretrain.mesh.replica_check import fingerprint_leaves
from pretrain.mesh.sharding import make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training import step
from pretrain.training.context import RestartableFeed
from pretrain.training.divergence import Diverged, DivergenceMonitor, is_finite_step, track_norms
from pretrain.training.loop import train
from pretrain.training.losses.loss import LossOutput
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.program import make_program
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import create_state
from pretrain.training.step import make_train_step
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from tests.command import split_words
from tests.pretrain.compiling import AS_USERS_DO

# ---- one step, of a model small enough to be compiled at once -----------------


@jax.custom_vjp
def trap_gradient(y, poison):
    """The output y; its gradient is NaN if `poison` is set."""
    return y


trap_gradient.defvjp(
    lambda y, poison: (y, poison), lambda poison, d: (jnp.where(poison.sum() > 0, jnp.nan, d), None)
)


def compute_sums(model, params, batch, **how):
    y = trap_gradient(batch["x"] @ params["kernel"], batch["poison"])
    return {"squares": jnp.square(y - 1).sum(-1) @ batch["label_weights"]}


SQUARES = SimpleNamespace(
    loss_terms=("squares",),
    count_tokens=lambda batch: batch["label_weights"].sum(),
    compute_loss=lambda means: means["squares"],
    sum_weights=lambda batch: {"squares": batch["label_weights"].sum()},
    compute_batch=lambda *given, **options: LossOutput(compute_sums(*given, **options), None, {}),
)


def make_batch(seed, scale=1.0, poison=False, value=None):
    x = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32) * np.float32(scale)
    if value is not None:
        x[3, 1] = value  # in one row of one micro-batch
    return {
        "x": x,
        "label_weights": np.ones(8, np.float32),
        "poison": np.full(8, poison, np.float32),
    }


NAN = make_batch(0, value=np.nan)
BAD = {"nan": NAN, "inf": make_batch(0, value=np.inf), "gradients": make_batch(0, poison=True)}
OPTIMIZERS = {
    "adamw": AdamW(learning_rate=0.1, warmup_steps=3),
    "relative": AdamW(learning_rate=0.1, warmup_steps=3, scale_by_param_rms=True),
    "adafactor": Adafactor(learning_rate=0.1, warmup_steps=3),
    "lamb": Lamb(learning_rate=0.1, warmup_steps=3),
    "teacher": AdamW(learning_rate=0.1, warmup_steps=3),
}


def make_jitted_step(optimizer="adamw", microbatches=1, **guard):
    """Return (jitted step, its initial state) of y = x W, optionally with a constant teacher."""
    run = load(
        "distilbert_base" if optimizer == "teacher" else "bert_tiny",
        [f"guard.{name}={value}" for name, value in guard.items()],
    )
    run = dataclasses.replace(run, optimizer=OPTIMIZERS[optimizer])
    transformation = make_run_optimizer(run)
    params = {"kernel": jnp.asarray(np.random.default_rng(9).standard_normal((4, 3)), jnp.float32)}
    params |= {"teacher": {"kernel": jnp.ones((2, 2))}} if optimizer == "teacher" else {}
    one = make_train_step(
        *(None, SQUARES, transformation, make_learning_rate(run.optimizer, run.train.steps)),
        **dict(
            seed=0,
            microbatches=microbatches,
            norm_factor=run.guard.norm_factor,
            norm_window=run.guard.norm_window,
        ),
    )
    return jax.jit(one, compiler_options=AS_USERS_DO), create_state(params, transformation)


def run_steps(one, state, batches):
    """Return (last state, [metrics]) on the host."""
    seen = []
    for each in batches:
        state, metrics = one(state, each)
        seen.append(jax.device_get(metrics))
    return jax.device_get(state), seen


def join_bytes(tree):
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))


def are_equal(one, other):
    return join_bytes((one.params, one.optimizer)) == join_bytes((other.params, other.optimizer))


CASES = [("adamw", 1, kind) for kind in BAD] + [
    ("adamw", 4, "nan"),
    ("relative", 1, "nan"),
    ("adafactor", 4, "gradients"),
    ("lamb", 1, "inf"),
]
CASES += [("teacher", 1, "nan")]


@pytest.mark.held_by(2)
@pytest.mark.parametrize(("optimizer", "microbatches", "kind"), CASES)
def test_bad_steps_change_nothing(optimizer, microbatches, kind):
    """During warm-up and later, alone and in a row: parameters, moments and counts equal a
    run without the skipped steps, bit for bit.
    """
    one, state = make_jitted_step(optimizer, microbatches)
    good, bad = [make_batch(seed) for seed in range(1, 7)], BAD[kind]
    expected, clean = run_steps(one, state, good)
    after, seen = run_steps(one, state, [good[0], bad, *good[1:4], bad, bad, *good[4:]])
    assert are_equal(expected, after) and after.step == 9 and expected.step == 6
    assert [metrics["skipped"] for metrics in seen] == [0, 1, 0, 0, 0, 1, 1, 0, 0]
    assert math.isfinite(seen[1]["loss"]) == (kind == "gradients") and not math.isfinite(
        seen[1]["gradient_norm"]
    )
    taken = [metrics["learning_rate"] for metrics in seen if not metrics["skipped"]]
    assert (
        taken == [metrics["learning_rate"] for metrics in clean] and taken[0] != taken[-1]
    )  # the rate waits with the moments
    assert np.isfinite(np.frombuffer(join_bytes(after.params), np.float32)).all()


def test_without_bad_steps_every_bit_is_as_without_a_guard(monkeypatch):
    """All of it except the selection is compared with the program before there was a guard: see
    docs/notebook.
    """
    good = [make_batch(seed) for seed in range(20)]
    guarded = run_steps(*make_jitted_step(), good)
    monkeypatch.setattr(step, "tree_where", lambda condition, new, old: new)
    free = run_steps(*make_jitted_step(), good)
    assert are_equal(guarded[0], free[0]) and [metrics["loss"] for metrics in guarded[1]] == [
        metrics["loss"] for metrics in free[1]
    ]
    harmed, _ = run_steps(*make_jitted_step(), [NAN])
    assert np.isnan(
        np.frombuffer(join_bytes(harmed.params), np.float32)
    ).all()  # the reason for the selection


@pytest.mark.parametrize("optimizer", ["adamw", "teacher"])
def test_a_spike_is_skipped_once_there_is_a_mean_to_hold_it_against(optimizer):
    one, state = make_jitted_step(optimizer, norm_factor=6, norm_window=5)
    good = [make_batch(seed) for seed in range(8)]
    high = make_batch(8, scale=10**0.5 * 2)  # the gradient grows with the square of x
    early, seen = run_steps(one, state, [*good[:4], high])
    assert [metrics["skipped"] for metrics in seen] == [0] * 5
    expected, clean = run_steps(one, state, good)
    after, seen = run_steps(one, state, [*good[:6], high, *good[6:]])
    assert seen[6]["gradient_norm"] > 6 * np.mean(
        [metrics["gradient_norm"] for metrics in clean[:6]]
    )
    assert [metrics["skipped"] for metrics in seen] == [0] * 6 + [1] + [0] * 2 and are_equal(
        expected, after
    )
    one, state = make_jitted_step()
    assert [metrics["skipped"] for metrics in run_steps(one, state, [*good, high])[1]] == [
        0
    ] * 9  # off by default


def test_the_mean_of_norms_is_of_all_and_then_of_about_the_last():
    transformation = track_norms(3)
    norms = transformation.init(None)
    for n, mean in enumerate((4.0, 3.0, 4.0, 6.0), 1):
        grads = {"a": jnp.full(1, (4.0, 2.0, 6.0, 10.0)[n - 1])}
        assert transformation.update(grads, norms)[0] is grads
        norms = transformation.update(grads, norms)[1]
        assert (norms.mean, norms.taken) == (pytest.approx(mean), n)


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("loss", "norm"), [(np.inf, 1.0), (np.nan, 1.0), (1.0, np.inf), (1.0, np.nan)]
)
def test_a_loss_or_a_norm_that_is_not_finite_is_enough_to_skip_a_step(loss, norm):
    assert is_finite_step(jnp.float32(1), jnp.float32(1), None, 0.0, 100)
    assert not is_finite_step(jnp.float32(loss), jnp.float32(norm), None, 0.0, 100)


def test_invalid_guards_are_refused():
    for word, message in (
        ("guard.norm_factor=0.5", "must be 0 or above 1"),
        ("guard.patience=0", "at least 1"),
        ("guard.patients=3", "did you mean 'patience'"),
    ):
        with pytest.raises(ConfigError, match=message):
            load("bert_tiny", [word])


# ---- the loop's decisions ----------------------------------------------------


def check_step(guard, step, skipped):
    guard.check({"step": step, "skipped": float(skipped)})


def test_a_window_is_counted_and_skipped_once():
    """Metrics arrive a step late: the batch after the window is read again."""
    guard, seen, rows = DivergenceMonitor(3, {}), [], [None]
    items = RestartableFeed(lambda start: iter_of(start, 20), 0)
    for item in items:
        seen.append(item)
        guard.check(rows[-1])
        rows.append({"step": item + 1, "skipped": float(3 <= item < 5 or 7 <= item < 10)})
        if guard.has_tripped:
            assert (guard.find_first_skipped(), guard.step) == (8, 10) and guard.make_record() == {
                "skipped": 3,
                "returned": False,
            }
            guard.note_restored()
            items.restart_at(guard.step)
            rows.append(None)
        if item == 12:
            break
    assert seen == [*range(11), *range(10, 13)] and not guard.has_tripped
    assert guard.has_gone_back and guard.make_record() == {
        "skipped": 0,
        "returned": False,
    }  # good steps since
    for number in (14, 15, 16):
        check_step(guard, number, True)
    guard.note_restored()
    assert guard.make_record() == {
        "skipped": 0,
        "returned": True,
    }  # of a stop before the first good step
    check_step(guard, 17, True)
    with pytest.raises(
        Diverged, match="steps 17 to 17 were skipped.* as were the steps that made it return"
    ):
        guard.check_end()
    again = DivergenceMonitor(2, {"skipped": 1, "returned": True})
    check_step(again, 15, True)
    with pytest.raises(Diverged):
        again.find_first_skipped()


def test_a_lower_patience_counts_from_the_next_step():
    """The counts of a checkpoint from within a window may reach a patience that was lowered."""
    guard = DivergenceMonitor(2, {"skipped": 3, "returned": False})
    assert not guard.has_tripped  # no step of this start is known
    check_step(guard, 9, True)
    assert guard.has_tripped and guard.find_first_skipped() == 6
    guard = DivergenceMonitor(2, {"skipped": 3, "returned": False})
    check_step(guard, 9, False)
    assert not guard.has_tripped and guard.make_record() == {"skipped": 0, "returned": False}


def iter_of(start, end):
    yield from range(start, end)


# ---- whole runs --------------------------------------------------------------


@pytest.fixture
def poisoned_feed(monkeypatch):
    """Return poisoned(steps): these have a NaN among their weights in every run."""

    def poison_steps(steps):
        def feed_poisoned(stream, mesh, start, stop, **options):
            for number, batch in prefetch_to_devices(stream, mesh, start, stop, **options):
                if number + 1 in steps:
                    batch = batch | {"label_weights": batch["label_weights"] * jnp.float32(jnp.nan)}
                yield number, batch

        monkeypatch.setattr("pretrain.training.phase_programs.prefetch_to_devices", feed_poisoned)

    return poison_steps


def read_rows(workdir):
    seen = metrics_file.read_metrics(workdir / "metrics.jsonl")
    assert all(row["loss"] is None for row in seen if row["skipped"])  # NaN is no JSON
    return seen


def list_skipped(workdir):
    return [row["step"] for row in read_rows(workdir) if row["skipped"]]


def read_record(workdir, step):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return checkpoints.load_record(step)


def continue_run(run, workdir, step, numbered, stop):
    """Return the leaves of the state that continues from `step` with the batches from a given
    number on: an independent loop.
    """
    from data.pipeline import Stream
    from data.store.reader import Store

    mesh = make_mesh(run.mesh)
    program = make_program(run, mesh)
    with jax.set_mesh(mesh), Checkpoints(workdir, read_only=True) as checkpoints:
        state = checkpoints.restore_state(
            program.abstract_state, program.state_shardings, before_step=step + 1
        )
        assert state.step == step
        state = state.replace(step=jax.device_put(np.int32(numbered), program.state_shardings.step))
        for _, batch in prefetch_to_devices(
            Stream(Store.open(run.data.store), run.data), mesh, numbered, stop
        ):
            state, _ = program.train_step(state, batch)
        return fingerprint_leaves(state.params), fingerprint_leaves(state.optimizer)


def test_a_window_is_skipped_and_a_stop_within_it_changes_nothing(
    configs, tmp_path, poisoned_feed, capsys
):
    """Steps 2, and 6 to 8: from step 4 on with the data after step 8. The same if the run stops at
    7, or crashes after 9.
    """
    poisoned_feed({2, 6, 7, 8})
    words = ["guard.patience=3", "evaluate.every=0"]
    run, workdir = load(configs["bert"], words), tmp_path / "run"
    began = time.time()
    assert train(run, workdir) is None
    errors = capsys.readouterr().err
    assert (
        "step 2 skipped: loss nan" in errors
        and "steps 6 to 8 were skipped. Training continues from the parameters of step 4 with the data that follow step 8"
        in errors
    )
    assert list_skipped(workdir) == [2, 6, 7, 8] and [
        row["step"] for row in read_rows(workdir)
    ] == list(range(1, 13))
    assert [
        (row["step"], row["went_back_to"]) for row in read_rows(workdir) if "went_back_to" in row
    ] == [(9, 4)]
    final = read_record(workdir, 12)
    assert (final["params"], final["optimizer"]) == continue_run(run, workdir, 4, 8, 12)
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert checkpoints.list_steps() == [
            12,
            9,
            4,
        ]  # what was due at 8, in the window, waited for a good step

    other = tmp_path / "other"
    assert train(load(configs["bert"], [*words, "train.stop_at_step=7"]), other) is None
    assert read_record(other, 7)["guard"] == {"skipped": 2, "returned": False}
    assert train(run, other) is None
    ledgers = [json.loads((place / "goodput.json").read_text()) for place in (workdir, other)]
    assert sum(ledgers[0]["seconds"].values()) == pytest.approx(
        ledgers[0]["until"] - began, rel=0.02
    )
    assert [ledger["starts"] for ledger in ledgers] == [1, 2] and all(
        ledger["seconds"]["lost"] > 0 for ledger in ledgers
    )
    for key in ("params", "optimizer"):
        assert read_record(other, 12)[key] == final[key]


def test_without_end_the_run_ends(configs, tmp_path, poisoned_feed, capsys):
    from pretrain.__main__ import main

    poisoned_feed(set(range(6, 99)))
    words = split_words(
        f"train {configs['bert']} --workdir {tmp_path / 'run'} guard.patience=3", "evaluate.every=0"
    )
    assert main(words) == 1
    errors = capsys.readouterr().err
    assert "from the parameters of step 4 with the data that follow step 8" in errors
    assert (
        "error: steps 9 to 11 were skipped because their loss or gradients are not finite or too large, as were the steps that made it return"
        in errors
    )
    assert list_skipped(tmp_path / "run") == [6, 7, 8, 9, 10, 11]
    assert not json.loads((tmp_path / "run" / "goodput.json").read_text())["ended"]
