"""`train --from RUN --step N --with-optimizer`: branches of a run, and what is refused of them."""

import dataclasses
import json

import numpy as np
import pytest

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from pretrain.__main__ import main
from pretrain.api import export, train
from pretrain.config import AdamW, Checkpoint, Evaluate, Lamb, Run, Train, to_json
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.workdir import Workdir
from tests.pretrain.conftest import make_texts
from tests.small_store import write_store
from tests.tiny import fit_sizes

SIZES = dict(length=16, width=16, depth=2, num_heads=2, mlp=32)
STEPS = 6  # of the stable run


def write_small_store(folder, size):
    vocabulary = train_vocabulary(make_texts(120), size)
    return write_store(
        folder, vocabulary, [[ids] for ids in vocabulary.encode_batch(make_texts(120))]
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_small_store(tmp_path_factory.mktemp("store") / "store", 40)


def make_run(store, **settings):
    """The stable run, with dropout and an EMA; `settings` replace whole fields of its sections."""
    sections = {
        "model": fit_sizes(BertConfig, SIZES, vocab=store.vocabulary.size),
        "data": Data(
            store=str(store.path),
            objective=MaskedLm(length=16, max_predictions=4),
            batch_size=8,
        ),
        "optimizer": AdamW(learning_rate=1e-2, warmup_steps=2, decay="constant"),
        "train": Train(steps=STEPS, compute_dtype="float32", ema_decay=0.9),
        "evaluate": Evaluate(every=0),
        "checkpoint": Checkpoint(every=2, keep=9),
    }
    for key, value in settings.items():
        section, name = key.split("__")
        sections[section] = dataclasses.replace(sections[section], **{name: value})
    return Run(**sections)


@pytest.fixture(scope="module")
def stable(store, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("runs") / "stable")
    train(make_run(store), place)
    return place


def read_leaves(workdir, step):
    """Return the fingerprints of a step's parameters and optimizer, and its count of rows."""
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.load_record(step)
        return record["params"], record["optimizer"], record["rows"]


def read_metrics(workdir):
    return Workdir.open(workdir).read_metrics()


def branch(stable, run, workdir, **options):
    options = {"step": 2, "with_optimizer": True} | options
    return train(run, str(workdir), pretrained=stable, **options)


def test_a_branch_with_the_settings_of_its_run_ends_with_its_bits(store, stable, tmp_path, capsys):
    """Rows, masks, dropout, moments, EMA and schedule go on after step 2; steps 3 to 6 are equal."""
    run = make_run(store)
    branch(stable, run, tmp_path / "again")
    captured = capsys.readouterr()
    printed = captured.out
    assert "goes on from" in printed and "after the 16 rows that it read" in printed
    assert "the learning rate of update 3 is 0.01, as there" in printed
    assert "continuing after step 2" in captured.err
    for step in (2, 4, 6):
        assert read_leaves(tmp_path / "again", step) == read_leaves(stable, step)
    assert [row["step"] for row in read_metrics(tmp_path / "again")] == [3, 4, 5, 6]


def test_a_branch_cools_down_from_the_stable_rate(store, stable, tmp_path, capsys):
    """Branched at step 4 to end at step 8: updates 5 to 8 have 1, 3/4, 1/2 and 1/4 of the rate."""
    cooldown = AdamW(1e-2, 2, decay="wsd", cooldown_steps=4, cooldown_shape="linear")
    run = dataclasses.replace(make_run(store, train__steps=8), optimizer=cooldown)
    branch(stable, run, tmp_path / "branch", step=4)
    assert "update 5 is 0.01, as there" in capsys.readouterr().out
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / "branch")]
    np.testing.assert_allclose(rates, [0.01, 0.0075, 0.005, 0.0025], rtol=1e-6)
    # The first update is still the one of the stable run.
    losses, stable_losses = (
        {row["step"]: row["loss"] for row in read_metrics(place)}
        for place in (tmp_path / "branch", stable)
    )
    assert losses[5] == stable_losses[5] and losses[6] == stable_losses[6]


def test_where_a_branch_comes_from_is_recorded_and_shown(store, stable, tmp_path, capsys):
    workdir = tmp_path / "branch"
    branch(stable, make_run(store), workdir)
    origin = json.loads((workdir / "origin.json").read_text())
    assert origin == {
        "folder": "stable",
        "pretrained_step": 2,
        "fresh": [],
        "with_optimizer": True,
        "rows": 16,
        "before": None,
    }
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert checkpoints.load_record(2)["origin"] == origin
    capsys.readouterr()
    assert main(["describe", str(workdir / "config.json")]) == 0
    assert "begun with stable at step 2, with its optimizer" in capsys.readouterr().out
    assert main(["report", "--workdir", str(workdir), "--output", str(tmp_path / "report")]) == 0
    assert "stable at step 2, with its optimizer" in (tmp_path / "report/report.html").read_text()
    export(str(workdir), str(tmp_path / "folder"))
    card = (tmp_path / "folder/README.md").read_text()
    assert "for 6 steps, the first 2 of them as `stable`." in card
    # The same command resumes it, and another step is named.
    capsys.readouterr()
    branch(stable, make_run(store), workdir)
    branch(stable, make_run(store), workdir, step=4)
    assert "it began with stable at step 2, not with stable at step 4" in capsys.readouterr().err


def test_without_the_optimizer_a_step_gives_its_parameters_alone(store, stable, tmp_path):
    run = make_run(store, train__steps=1)
    branch(stable, run, tmp_path / "new", step=4, with_optimizer=False)
    with (
        Checkpoints(tmp_path / "new", read_only=True) as checkpoints,
        Checkpoints(stable, read_only=True) as given,
    ):
        assert checkpoints.load_record(0)["params"] == given.load_record(4)["params"]
        assert checkpoints.load_record(0)["optimizer"] != given.load_record(4)["optimizer"]


def test_other_data_is_read_from_its_first_row(store, stable, tmp_path, capsys):
    """The cool-down often has better data; the vocabulary is the same."""
    texts = store.vocabulary.encode_batch(make_texts(80))
    other = write_store(tmp_path / "other", store.vocabulary, [[ids] for ids in texts])
    branch(stable, make_run(other, train__steps=3), tmp_path / "branch")
    assert "with its optimizer, at the first row of its data" in capsys.readouterr().out
    assert read_leaves(tmp_path / "branch", 3)[2] == 8


@pytest.mark.parametrize(
    ("settings", "options", "error", "message"),
    [
        ({}, {"step": 3}, FileNotFoundError, r"no checkpoint of step 3; there are \[2, 4, 6\]"),
        ({}, {"step": 6}, ConfigError, "would end at step 6: set train.steps to a number above 6"),
        (
            {"train__ema_decay": 0.0},
            {},
            ConfigError,
            "optimizer's values do not fit this configuration: .* Give the run the model and",
        ),
        (
            {"model__mlp": 48},
            {},
            ConfigError,
            r"mlp/up/kernel: \[16, 32\] -> \[16, 48\].* model.mlp: 32 -> 48. Give both models",
        ),
        ({"model__scan": False}, {}, ConfigError, "do not fit .*model.scan"),
    ],
)
def test_what_a_branch_cannot_go_on_from(
    settings, options, error, message, store, stable, tmp_path
):
    with pytest.raises(error, match=message):
        branch(stable, make_run(store, **settings), tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_another_optimizer_and_another_vocabulary_are_refused(store, stable, tmp_path):
    lamb = dataclasses.replace(make_run(store), optimizer=Lamb(1e-2, 2, decay="constant"))
    with pytest.raises(ConfigError, match="--with-optimizer: .*optimizer's values do not fit"):
        branch(stable, lamb, tmp_path / "new")
    other = write_small_store(tmp_path / "other", 36)
    with pytest.raises(ConfigError, match="has another vocabulary than"):
        branch(stable, make_run(other), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_flags_of_a_branch_need_a_run(store, stable, tmp_path, capsys):
    config = tmp_path / "run.json"
    config.write_text(to_json(make_run(store)))
    folder = str(tmp_path / "folder")
    export(stable, folder)
    command = ["train", str(config), "--workdir", str(tmp_path / "new")]
    for arguments, message in [
        (["--with-optimizer"], "--with-optimizer: name the run to begin with by --from"),
        (["--step", "2"], "--step: name the run to begin with by --from"),
        (["--from", stable, "--tile", "--with-optimizer"], "tiled weights have no optimizer"),
        (["--from", folder, "--step", "2"], f"--step 2: {folder} is no workdir"),
        (["--from", folder, "--with-optimizer"], "is no workdir, so it has no optimizer"),
    ]:
        assert main([*command, *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
