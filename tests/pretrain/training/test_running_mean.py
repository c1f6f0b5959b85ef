"""The running mean of the parameters is its formula, lies as the parameters do, survives a restart, and is scored and taken out by choice."""

import dataclasses
import functools
import json

import jax
import numpy as np
import optax
import pytest

from data.vocabulary.load import load_vocabulary
from models import build
from pretrain.__main__ import main
from pretrain.cli.average import average
from pretrain.config import Evaluate, Mesh
from pretrain.distributed.sharding import make_mesh, shardings
from pretrain.training.new_workdir import start_workdir
from pretrain.training.optimizers import allow_promotion, make_run_optimizer
from pretrain.training.optimizers.running_mean import mean_params, with_running_mean
from pretrain.training.state import init_state
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import restore_params

DECAY = 0.25  # from the third update on: (1 + t) / (10 + t) is 2 / 11, then 3 / 12


def expected_mean(mean, params_T, first=1):
    """The recurrence in float64, of lists of arrays; first: the number of the first update."""
    for t, params in enumerate(params_T, first):
        share = 1 - min(DECAY, (1 + t) / (10 + t))
        mean = [m + share * (p - m) for m, p in zip(mean, params, strict=True)]
    return mean


def leaves(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def test_it_is_its_formula():
    rng = np.random.default_rng(0)
    params = {"a": rng.standard_normal((3, 2), np.float32), "b": np.float32([1.0])}
    optimizer = with_running_mean(allow_promotion(optax.adam(0.1)), DECAY)
    plain, state, seen = allow_promotion(optax.adam(0.1)), optimizer.init(params), []
    plain_state, first = plain.init(params), params
    for _ in range(6):
        grads = jax.tree.map(lambda p: rng.standard_normal(p.shape, np.float32), params)
        updates, state = optimizer.update(grads, state, params)
        same, plain_state = plain.update(grads, plain_state, params)
        jax.tree.map(np.testing.assert_array_equal, updates, same)
        params = optax.apply_updates(params, updates)
        seen.append(leaves(params))
    assert state.count == 6
    for found, expected in zip(
        leaves(mean_params(state)), expected_mean(leaves(first), seen), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    (distance, _) = (np.abs(a - b).max() for a, b in zip(leaves(mean_params(state)), seen[-1]))
    assert distance > 1e-3


def with_ema(run, decay=DECAY):

    return dataclasses.replace(run, train=dataclasses.replace(run.train, ema_decay=decay))


def test_it_lies_as_the_parameters_do(runs):
    run = with_ema(runs["bert_pairs"])
    init = functools.partial(
        init_state, build(run.model), run.data.objective, make_run_optimizer(run), 0
    )
    placed = shardings(jax.eval_shape(init), make_mesh(Mesh(1, 4, 2)))
    assert jax.tree.leaves(mean_params(placed.optimizer)) == jax.tree.leaves(placed.params)
    assert any(any(sharding.spec) for sharding in jax.tree.leaves(placed.params))


WORDS = [f"train.ema_decay={DECAY}", "train.steps=4", "checkpoint.every=1", "evaluate.every=4"]


@pytest.fixture(scope="module")
def run(configs, tmp_path_factory):
    """A workdir with the checkpoints of 4 steps, the last of which is scored by the mean."""
    workdir = tmp_path_factory.mktemp("ema") / "run"
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), *WORDS]
    assert main([*words, "evaluate.ema=true"]) == 0
    return workdir


def read_mean(run, folder, step):
    average(run, folder / f"mean-{step}", [step], ema=True)
    return restore_params(folder / f"mean-{step}")[2]


def test_a_run_keeps_it(run, tmp_path):
    first, last = (leaves(read_mean(run, tmp_path, step)) for step in (1, 4))
    params = [leaves(restore_params(run, step)[2]) for step in (2, 3, 4)]
    for found, expected in zip(last, expected_mean(first, params, first=2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert max(np.abs(a - b).max() for a, b in zip(last, params[-1], strict=True)) > 1e-4


def test_it_goes_on_after_a_restart_to_the_same_bits(run, configs, tmp_path):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *WORDS]
    assert main([*words, "train.stop_at_step=2", "evaluate.every=0"]) == 0
    assert main([*words, "evaluate.every=0"]) == 0
    (tmp_path / "a").mkdir()
    jax.tree.map(
        np.testing.assert_array_equal,
        read_mean(tmp_path / "run", tmp_path, 4),
        read_mean(run, tmp_path / "a", 4),
    )


def test_the_loop_scores_it_by_choice(run, tmp_path, capsys):
    (scored,) = [
        row["heldout_loss"]
        for row in metrics_file.read(run / "metrics.jsonl")
        if "heldout_loss" in row
    ]
    words = ["average", "--workdir", str(run), "--ema", "--output", str(tmp_path / "mean")]
    assert main(words) == 0
    assert "the running mean of steps 4 of" in capsys.readouterr().out
    found = {}
    for name, workdir in (("mean", tmp_path / "mean"), ("params", run)):
        assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out.splitlines()[-1])["loss"]
    assert found["mean"] == pytest.approx(scored, rel=1e-6)
    assert found["params"] != pytest.approx(scored, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate.ema=true"], "evaluate.ema scores the running mean"),
        (["train.ema_decay=1"], "Train.ema_decay is 1.0; it must be at least 0 and below 1"),
        (["train.ema_decay=-0.1"], "Train.ema_decay is -0.1; it must be at least 0 and below 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(configs, tmp_path, capsys, words, message):
    workdir = tmp_path / "run"
    assert main(["train", str(configs["bert"]), "--workdir", str(workdir), *words]) == 2
    assert message in capsys.readouterr().err
    assert not workdir.exists()


def test_a_run_without_it_has_none_to_give(run, configs, tmp_path, capsys):
    config, _, params = restore_params(run)
    plain = dataclasses.replace(with_ema(config, 0.0), evaluate=Evaluate())
    start_workdir(tmp_path / "plain", plain, params, load_vocabulary(run / "vocabulary"))
    words = ["average", "--workdir", str(tmp_path / "plain"), "--ema"]
    assert main([*words, "--output", str(tmp_path / "v")]) == 2
    assert "keeps no running mean of its parameters" in capsys.readouterr().err
    assert not (tmp_path / "v").exists()
    changed = ["train", str(configs["bert"]), "--workdir", str(run), *WORDS, "train.ema_decay=0.5"]
    assert main(changed) == 2
    assert "train.ema_decay: 0.25 -> 0.5" in capsys.readouterr().err
