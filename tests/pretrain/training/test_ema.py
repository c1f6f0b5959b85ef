"""The moving average of the parameters equals its formula, is sharded like the parameters, survives
a restart, and is used on request.
"""

import contextlib
import dataclasses
import functools
import io
import json

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file

from data.vocabulary.load import load_vocabulary
from models import build
from pretrain import api
from pretrain.__main__ import main
from pretrain.cli.average import average_checkpoints
from pretrain.config import Evaluate, Mesh
from pretrain.convert.read_write import write_model
from pretrain.mesh.sharding import make_mesh, make_param_sharding, make_state_shardings
from pretrain.reporting.curves import list_curves
from pretrain.reporting.run_report import make_curves
from pretrain.training import evaluation
from pretrain.training.new_workdir import start_workdir
from pretrain.training.optimizers import allow_promotion, make_run_optimizer
from pretrain.training.optimizers.ema import get_ema_params, track_ema
from pretrain.training.state import init_state
from pretrain.workdir.metrics_file import read_metrics
from pretrain.workdir.read_params import restore_params
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir

DECAY = 0.25  # from the third update on: (1 + t) / (10 + t) is 2 / 11, then 3 / 12


def expected_mean(mean, params_T, first=1):
    """Compute the recurrence in float64 for lists of arrays; first: the number of the first update."""
    for t, params in enumerate(params_T, first):
        share = 1 - min(DECAY, (1 + t) / (10 + t))
        mean = [m + share * (p - m) for m, p in zip(mean, params, strict=True)]
    return mean


def list_leaves(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def test_it_is_its_formula():
    rng = np.random.default_rng(0)
    params = {"a": rng.standard_normal((3, 2), np.float32), "b": np.float32([1.0])}
    optimizer = track_ema(allow_promotion(optax.adam(0.1)), DECAY)
    plain, state, seen = allow_promotion(optax.adam(0.1)), optimizer.init(params), []
    plain_state, first = plain.init(params), params
    for _ in range(6):
        grads = jax.tree.map(lambda p: rng.standard_normal(p.shape, np.float32), params)
        updates, state = optimizer.update(grads, state, params)
        same, plain_state = plain.update(grads, plain_state, params)
        jax.tree.map(np.testing.assert_array_equal, updates, same)
        params = optax.apply_updates(params, updates)
        seen.append(list_leaves(params))
    assert state.count == 6
    for found, expected in zip(
        list_leaves(get_ema_params(state)), expected_mean(list_leaves(first), seen), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(list_leaves(get_ema_params(state))[0] - seen[-1][0]).max() > 1e-3


def test_it_needs_the_parameters():
    optimizer = track_ema(optax.sgd(1.0), DECAY)
    params = {"a": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="needs the parameters"):
        optimizer.update(params, optimizer.init(params))


def with_decay(run, decay=DECAY):
    return dataclasses.replace(run, train=dataclasses.replace(run.train, ema_decay=decay))


def test_it_is_sharded_as_the_parameters_are(runs):
    run = with_decay(runs["bert_pairs"])
    init = functools.partial(
        init_state, build(run.model), run.data.objective, make_run_optimizer(run), 0
    )
    placed = make_state_shardings(jax.eval_shape(init), make_mesh(Mesh(1, 4, 2)))
    assert jax.tree.leaves(get_ema_params(placed.optimizer)) == jax.tree.leaves(placed.params)
    assert any(any(sharding.spec) for sharding in jax.tree.leaves(placed.params))


WORDS = [f"train.ema_decay={DECAY}", "train.steps=4", "checkpoint.every=1", "evaluate.every=4"]
# With it the average is the second of a pair in the optimizer's state.
NORMS = ["guard.norm_factor=100"]


@pytest.fixture(scope="module")
def trained(configs, tmp_path_factory):
    """Return a workdir with the checkpoints of 4 steps, what was printed, and its programs."""
    workdir = tmp_path_factory.mktemp("ema") / "run"
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), *WORDS]
    make, programs = evaluation.make_evaluation_step, []

    def make_step(*args, **options):
        programs.append(make(*args, **options))
        return programs[-1]

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as lines:
        patch.setattr(evaluation, "make_evaluation_step", make_step)
        assert main([*words, *NORMS, "evaluate.ema=true"]) == 0
    return workdir, lines.getvalue(), programs


@pytest.fixture(scope="module")
def run(trained):
    return trained[0]


def read_mean(run, folder, step):
    average_checkpoints(run, folder / f"mean-{step}", [step], ema=True)
    return restore_params(folder / f"mean-{step}")[2]


def test_a_run_keeps_it(run, tmp_path):
    first, last = (list_leaves(read_mean(run, tmp_path, step)) for step in (1, 4))
    params = [list_leaves(restore_params(run, step)[2]) for step in (2, 3, 4)]
    for found, expected in zip(last, expected_mean(first, params, first=2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert max(np.abs(a - b).max() for a, b in zip(last, params[-1], strict=True)) > 1e-4


def test_it_goes_on_after_a_restart_to_the_same_bits(run, configs, tmp_path):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *WORDS]
    words += [*NORMS, "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=2"]) == 0
    assert main(words) == 0
    (tmp_path / "a").mkdir()
    jax.tree.map(
        np.testing.assert_array_equal,
        read_mean(tmp_path / "run", tmp_path, 4),
        read_mean(run, tmp_path / "a", 4),
    )


def test_it_is_evaluated_and_exported_as_what_it_is(run, tmp_path, capsys):
    words = ["average", "--workdir", str(run), "--ema", "--output", str(tmp_path / "ema")]
    assert main(words) == 0
    assert "the mean of the moving averages of steps 4 of" in capsys.readouterr().out
    found = {}
    for name, workdir in (("ema", tmp_path / "ema"), ("params", run)):
        assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out.splitlines()[-1])["loss"]
    (scored,) = (
        row["heldout_loss"] for row in read_metrics(run / "metrics.jsonl") if "heldout_loss" in row
    )
    assert found["params"] == pytest.approx(scored, rel=1e-6)
    assert found["ema"] != pytest.approx(scored, rel=1e-5)
    words = ["export", "--workdir", str(tmp_path / "ema"), "--output", str(tmp_path / "hf")]
    assert main([*words, "--allow-random-head"]) == 0
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "moving averages of the parameters (decay 0.25) in the checkpoints of steps 4" in card


def read_scored(run):
    (row,) = (row for row in read_metrics(run / "metrics.jsonl") if "heldout_loss" in row)
    return row


def test_a_run_scores_both_and_compiles_once(trained, capsys):
    run, printed, programs = trained
    row, found = read_scored(run), {}
    for parameters in ("raw", "ema"):
        words = ["evaluate", "--workdir", str(run), "--parameters", parameters, "--json"]
        assert main(words) == 0
        found[parameters] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["raw"]["loss"] != found["ema"]["loss"]
    names = {key.removeprefix("heldout_ema/") for key in row if key.startswith("heldout_ema/")}
    assert {"loss", "perplexity", "rows"} <= names
    for start, scores in (("heldout_", found["raw"]), ("heldout_ema/", found["ema"])):
        for name in names:
            assert row[start + name] == pytest.approx(scores[name], rel=1e-6)
    assert f", ema/loss {found['ema']['loss']:.4g}" in printed
    assert sum(program._cache_size() for program in programs) == 1


def test_the_best_checkpoint_can_be_the_averages(configs, tmp_path, capsys):
    """Of three evaluated steps the newest stays, and the one with the average's lowest loss."""
    run = tmp_path / "run"
    words = [*WORDS, "train.steps=6", "train.stop_at_step=3", "optimizer.learning_rate=0.1"]
    words += ["optimizer.warmup_steps=0", "evaluate.every=1", "evaluate.ema=true"]
    words += ["checkpoint.keep=1", "checkpoint.best=ema/loss"]
    assert main(["train", str(configs["bert"]), "--workdir", str(run), *words]) == 0
    rows = {
        row["step"]: row for row in read_metrics(run / "metrics.jsonl") if "heldout_loss" in row
    }
    best, best_raw = (
        min(rows, key=lambda step: rows[step][key]) for key in ("heldout_ema/loss", "heldout_loss")
    )
    assert len({best, best_raw, 3}) == 3 and Workdir.open(run).list_steps() == [3, best]
    capsys.readouterr()
    asked = ["--workdir", str(run), "--step", str(best), "--parameters", "ema"]
    assert main(["evaluate", *asked, "--json"]) == 0
    loss = json.loads(capsys.readouterr().out.splitlines()[-1])["loss"]
    assert loss == pytest.approx(rows[best]["heldout_ema/loss"], rel=1e-6)
    assert main(["export", *asked, "--output", str(tmp_path / "hf")]) == 0
    assert f"| loss | {loss:.5g} |" in (tmp_path / "hf" / "README.md").read_text()


def test_both_have_a_curve(run, tmp_path):
    rows = read_metrics(run / "metrics.jsonl")
    (loss,) = (curve for curve in list_curves(rows) if curve.label == "loss (nats)")
    assert loss[2:] == ("loss", "heldout_loss", "heldout_ema/loss")
    assert not [curve for curve in list_curves(rows) if "ema" in curve.label]
    (curve,) = (curve for curve in make_curves(rows) if curve["label"] == "loss (nats)")
    assert curve["ema"][::3] == [[4], [read_scored(run)["heldout_ema/loss"]]]


def test_an_export_has_the_bits_of_the_average(run, tmp_path):
    """Orbax alone reads the optimizer's state, and the exported tensors are the average in it."""
    saved = ocp.StandardCheckpointer().restore(run / "checkpoints" / "4" / "optimizer")
    ema = saved[1]["ema"]
    words = ["export", "--workdir", str(run), "--parameters", "ema"]
    assert main([*words, "--output", str(tmp_path / "hf")]) == 0
    opened = api.load(run, parameters="ema")
    api.export(opened, tmp_path / "again")
    write_model(tmp_path / "expected", opened.run.model, ema, opened.encoding)
    expected, found, again = (
        load_file(tmp_path / name / "model.safetensors") for name in ("expected", "hf", "again")
    )
    assert found.keys() == expected.keys() == again.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor)
        np.testing.assert_array_equal(again[name], tensor)
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "The weights are the moving average of the trained parameters (decay 0.25)." in card
    assert f"| loss | {read_scored(run)['heldout_ema/loss']:.5g} |" in card


def test_it_is_opened_sharded(run):
    mesh = make_mesh(Mesh(1, 4, 2))
    place = functools.partial(make_param_sharding, mesh=mesh)
    whole, sharded = (
        open_trained(run, 4, "ema", choose_sharding=choose).params for choose in (None, place)
    )
    assert any(not leaf.is_fully_replicated for leaf in jax.tree.leaves(sharded))
    jax.tree.map(np.testing.assert_array_equal, whole, sharded)


def test_a_loaded_checkpoint_keeps_its_parameters(run):
    with pytest.raises(ValueError, match="the loaded checkpoint has the ema ones"):
        api.load(api.load(run, parameters="ema"), parameters="raw")
    with pytest.raises(ValueError, match="--parameters best: must be raw or ema"):
        api.load(run, parameters="best")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate.ema=true"], "evaluate.ema=true: the run keeps no moving average"),
        (["train.ema_decay=0.99999999"], "must be at least 0 and below 1 in float32"),
        (["train.ema_decay=1"], "Train.ema_decay is 1.0; it must be at least 0 and below 1"),
        (["train.ema_decay=-0.1"], "Train.ema_decay is -0.1; it must be at least 0 and below 1"),
    ],
)
def test_invalid_settings_are_refused(configs, tmp_path, capsys, words, message):
    workdir = tmp_path / "run"
    assert main(["train", str(configs["bert"]), "--workdir", str(workdir), *words]) == 2
    assert message in capsys.readouterr().err
    assert not workdir.exists()


def test_a_run_without_a_moving_average_has_none(run, configs, tmp_path, capsys):
    config, _, params = restore_params(run)
    plain = dataclasses.replace(with_decay(config, 0.0), evaluate=Evaluate())
    start_workdir(tmp_path / "plain", plain, params, load_vocabulary(run / "vocabulary"))
    words = ["average", "--workdir", str(tmp_path / "plain"), "--ema"]
    assert main([*words, "--output", str(tmp_path / "v")]) == 2
    assert "maintains no moving average of its parameters" in capsys.readouterr().err
    assert not (tmp_path / "v").exists()
    asked = ["--workdir", str(tmp_path / "plain"), "--parameters", "ema"]
    for words in (["evaluate"], ["predict", "[MASK]"], ["export", "--output", str(tmp_path / "v")]):
        assert main([*words, *asked]) == 2
        assert "train with train.ema_decay, or use the parameters" in capsys.readouterr().err
    assert not (tmp_path / "v").exists()
    changed = ["train", str(configs["bert"]), "--workdir", str(run), *WORDS, *NORMS]
    changed += ["evaluate.ema=true", "train.ema_decay=0.5"]
    assert main(changed) == 2
    assert "train.ema_decay: 0.25 -> 0.5" in capsys.readouterr().err
