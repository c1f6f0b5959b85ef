"""A run is a function of its configuration and its store, however often and however it is
interrupted.
"""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from pretrain.__main__ import main
from pretrain.config import load
from pretrain.settings.overrides import ConfigError
from pretrain.training.loop import train
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.read_params import restore_params
from tests import forks
from tests.command import split_words

TIMES = ("seconds", "input_seconds", "tokens_per_second")


def make_command(root, *words):
    return {"args": [sys.executable, "-m", "pretrain", *map(str, words)], "cwd": root}


def read_rows(workdir):
    return [
        {key: value for key, value in row.items() if key not in TIMES}
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
    ]


def read_record(workdir, step):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return checkpoints.load_record(step)


def kill_after(process, workdir, step):
    """Send SIGKILL once the row of `step` is written."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if any(row["step"] >= step for row in metrics_file.read_metrics(workdir / "metrics.jsonl")):
            process.kill()
            process.wait()
            return
        time.sleep(0.005)
    raise AssertionError(f"step {step} was not seen; exit status {process.poll()}")


@pytest.fixture(scope="module", params=("bert", "t5"))
def undisturbed(request, root, configs, tmp_path_factory):
    """Return (name, workdir) of an uninterrupted run from the command line; T5's for the board
    alone.
    """
    if request.param == "t5":
        request.getfixturevalue("whole")
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    done = subprocess.run(
        **make_command(root, "train", configs[request.param], "--workdir", workdir),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "saved step 12" in done.stderr
    return request.param, workdir


@pytest.mark.held_by(1)
def test_a_run_that_was_killed_twice_ends_with_the_same_bits(undisturbed, root, configs, tmp_path):
    name, expected = undisturbed
    forks.prepare_server()
    workdir, began = tmp_path / "run", time.time()
    for step in (3, 9):  # before the first checkpoint, and between the second and the third
        process = forks.Popen(
            **make_command(root, "train", configs[name], "--workdir", workdir),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        kill_after(process, workdir, step)
        assert process.returncode == -signal.SIGKILL
    done = forks.run(
        **make_command(root, "train", configs[name], "--workdir", workdir),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert read_rows(workdir) == read_rows(expected)
    assert [row["step"] for row in read_rows(workdir)] == list(range(1, 13))
    for key in ("params", "optimizer"):
        assert read_record(workdir, 12)[key] == read_record(expected, 12)[key]
    ledger = json.loads((workdir / "goodput.json").read_text())
    assert ledger["starts"] == 3 and all(
        ledger["seconds"].values()
    )  # some time in each part, lost time and downtime included
    assert (
        ledger["until"] - began > sum(ledger["seconds"].values()) > 0.8 * (ledger["until"] - began)
    )  # except the first imports
    assert "goodput " in done.stderr and " s in 3 starts: start " in done.stderr


@pytest.mark.held_by(1)
def test_a_run_leaves_what_the_other_verbs_need(undisturbed):
    name, workdir = undisturbed
    names = {
        "checkpoints", "config.json", "environment.jsonl", "goodput.json", "source.json",
        "metrics.jsonl", "tensorboard", "vocabulary",
    }  # fmt: skip
    assert {path.name for path in workdir.iterdir()} == names
    last = metrics_file.read_metrics(workdir / "metrics.jsonl")[-1]
    assert {
        "step",
        "loss",
        "tokens_per_second",
        "input_seconds",
        "gradient_norm",
        "learning_rate",
        "heldout_loss",
    } <= last.keys()
    run, step, _ = restore_params(workdir)
    assert step == 12 and run == load(workdir / "config.json")


@pytest.mark.held_by(1)
def test_evaluate_repeats_the_score_of_the_last_step(undisturbed, capsys):
    _, workdir = undisturbed
    assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    last = metrics_file.read_metrics(workdir / "metrics.jsonl")[-1]
    assert scores["step"] == 12
    assert scores["loss"] == pytest.approx(
        last["heldout_loss"], rel=1e-5
    )  # 8 devices here, 1 there
    assert main(["evaluate", "--workdir", str(workdir), "--step", "8"]) == 0
    assert "step 8 on the heldout split" in capsys.readouterr().out
    assert main(["evaluate", "--workdir", str(workdir), "--step", "7"]) == 2
    assert "no checkpoint of step 7; there are [4, 8, 12]" in capsys.readouterr().err


@pytest.mark.held_by(1)
def test_evaluation_sums_are_exact_over_all_rows(undisturbed, stores):
    """The score equals a second way: one batch with the whole split, and NumPy's log-softmax."""
    import dataclasses

    from data.pipeline import Stream
    from models import build
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.losses import find_loss

    name, workdir = undisturbed
    run, _, params = restore_params(workdir)
    stream = Stream(
        stores[name], dataclasses.replace(run.data, batch_size=8), split="heldout", seed=0
    )
    whole = Stream(
        stores[name],
        dataclasses.replace(run.data, batch_size=stream.num_rows),
        split="heldout",
        seed=0,
    )
    (batch,) = whole.iterate_evaluation_batches()
    model, loss = build(run.model), find_loss(run.data.objective.name)
    outputs = model.apply({"params": params}, **loss.select_inputs(batch))
    logits = np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs, np.float64)
    logits -= logits.max(-1, keepdims=True)
    nats = (
        np.log(np.exp(logits).sum(-1))
        - np.take_along_axis(logits, batch["labels"][..., None], -1)[..., 0]
    )
    mesh = make_mesh(run.mesh)
    with jax.set_mesh(mesh):
        params = jax.device_put(
            jax.device_get(params), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        )
        scores = make_evaluator(model, loss, mesh, compute_dtype="float32")(params, stream)
    assert scores["targets"] == batch["label_weights"].sum() and scores["rows"] == stream.num_rows
    assert scores[loss.loss_terms[0]] == pytest.approx(
        (nats * batch["label_weights"]).sum() / batch["label_weights"].sum(), rel=1e-5
    )


@pytest.mark.held_by(1)
def test_the_same_command_again_does_nothing(undisturbed, capsys, configs):
    name, workdir = undisturbed
    before = read_rows(workdir)
    assert main(["train", str(configs[name]), "--workdir", str(workdir)]) == 0
    assert "step 12 of 12 has already been reached" in capsys.readouterr().out
    assert read_rows(workdir) == before


@pytest.mark.held_by(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves(whole, root, configs, tmp_path, number):
    """The suite sends SIGTERM to one process in tests/faults/test_asked_to_stop.py, SIGINT to one
    of two in test_hosts.py.
    """
    workdir = tmp_path / "run"
    process = subprocess.Popen(
        **make_command(root, "train", configs["bert"], "--workdir", workdir, "train.steps=100000", "checkpoint.every=100000", "evaluate.every=0"),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 120
    while len(metrics_file.read_metrics(workdir / "metrics.jsonl")) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(number)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    (step,) = [
        int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()
    ]
    assert [row["step"] for row in metrics_file.read_metrics(workdir / "metrics.jsonl")] == list(
        range(1, step + 1)
    )
    assert f"saved step {step}" in output


# ---- refused before anything is computed -----------------------------------------


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.batch_size=12"],
         "data.batch_size=12 does not divide into train.microbatches=1 on data x fsdp = 8 devices"),
        (["train.microbatches=2"], "it must be a multiple of 16"),
        (["data.batch_size=0"], "it must be a multiple of 8, at least 8"),
        (["mesh.model=3"], "does not cover 8 devices"),
        (["model.vocab=32"], "model.vocab=32 is smaller than the token store's vocabulary of 40; set model.vocab=128"),
        (["model.length=16"], "rows of 32 tokens are longer than the model's 16 positions"),
        (["model=RobertaConfig", "data.objective=MaskedLm"],
         "model.first_position=2, expected 1: 1 more than the id of the pad token in the token store's vocabulary, 0; set model.first_position=1"),
        (["data.store=/nowhere"], "/nowhere"),
        (["train.steps=5", "train.stop_at_step=6"], "is above Train.steps=5"),
    ],
)  # fmt: skip
def test_incompatible_configurations_are_refused_and_nothing_is_written(
    configs, tmp_path, capsys, words, message
):
    assert main(["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_workdir_may_be_named_relative_to_the_current_folder(configs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            split_words(
                f"train {configs['bert']} --workdir here/run train.stop_at_step=1 evaluate.every=0"
            )
        )
        == 0
    )
    assert main(["evaluate", "--workdir", "here/run", "--json"]) == 0
    assert (tmp_path / "here" / "run" / "checkpoints" / "1").is_dir()


@pytest.mark.held_by(1)
def test_a_workdir_belongs_to_one_configuration(undisturbed, configs):
    name, workdir = undisturbed
    if name != "bert":
        pytest.skip("once is enough")
    changed = load(
        configs["bert"], ["optimizer.learning_rate=0.5", "data.threads=2", "watchdog.step=60"]
    )
    with pytest.raises(
        ConfigError,
        match="optimizer.learning_rate: 0.01 -> 0.5. Name a new --workdir, or add --allow-changes",
    ):
        train(changed, workdir)
    assert load(workdir / "config.json").optimizer.learning_rate == 0.01


@pytest.mark.more
def test_a_run_goes_on_with_longer_rows(configs, tmp_path, capsys):
    """BERT's two phases: most steps on short rows, the rest on long ones, under one schedule.
    Devices and evaluation intervals may change.
    """
    command = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run")]
    first = ["data.objective.length=16", "data.objective.max_predictions=3", "evaluate.every=0"]
    assert main([*command, *first, "train.stop_at_step=2"]) == 0
    then = ["train.stop_at_step=4", "mesh.data=2", "mesh.fsdp=4", "evaluate.every=3"]
    assert main([*command, *then]) == 2
    refused = capsys.readouterr().err
    assert (
        "data.objective.length: 16 -> 32" in refused
        and "mesh." not in refused
        and "evaluate." not in refused
    )
    assert main([*command, *then, "--allow-changes"]) == 0
    changed = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("changed on continuing: ")
    ]
    assert changed == [
        "changed on continuing: data.objective.length: 16 -> 32",
        "changed on continuing: data.objective.max_predictions: 3 -> 6",
    ]
    seen = metrics_file.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in seen] == [1, 2, 3, 4]
    assert seen[2]["tokens"] > seen[1]["tokens"]
    assert "heldout_loss" in seen[3]  # the last step is scored, though 3 does not divide 4


def test_waiting_for_input_is_seen(configs, tmp_path, monkeypatch):
    from pretrain.mesh.device_feed import prefetch_to_devices

    def feed_slowly(*args, **options):
        for i, item in enumerate(prefetch_to_devices(*args, **options)):
            time.sleep(0.5 * (i == 1))
            yield item

    monkeypatch.setattr("pretrain.training.phase_programs.prefetch_to_devices", feed_slowly)
    train(load(configs["bert"], ["train.stop_at_step=3", "evaluate.every=0"]), tmp_path / "run")
    waited = [
        row["input_seconds"]
        for row in metrics_file.read_metrics(tmp_path / "run" / "metrics.jsonl")
    ]
    assert waited[1] >= 0.5 > waited[2]


def test_a_value_that_slips_from_the_host_into_the_step_is_an_error(configs, tmp_path, monkeypatch):
    def feed_host_arrays(stream, mesh, start, stop, **options):
        yield from ((step, stream.build_batch(step)) for step in range(start, stop))

    monkeypatch.setattr("pretrain.training.phase_programs.prefetch_to_devices", feed_host_arrays)
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        train(load(configs["bert"], ["train.stop_at_step=3", "evaluate.every=0"]), tmp_path / "run")


@pytest.mark.more  # test_finetune.py and test_squad.py learn to more than 0.9
def test_a_model_learns_a_learnable_text(configs, tmp_path):
    """The loss of a tiny T5 falls with AdamW, clipping and schedule, on a text whose words follow a
    rule.
    """
    train(
        load(
            configs["t5"],
            ["train.steps=60", "evaluate.every=60", "checkpoint.every=60", "model.dropout=0.0"],
        ),
        tmp_path / "run",
    )
    seen = read_rows(tmp_path / "run")
    assert seen[-1]["heldout_loss"] < seen[0]["loss"] - 1.0
