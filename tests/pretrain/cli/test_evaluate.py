"""`evaluate`: its sums are the exported model's, its dtype is named and can be chosen."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from models.config.gpt2 import Gpt2Config
from pretrain.__main__ import main
from pretrain.config import Evaluate, Train
from pretrain.training.loop import train
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.metrics_file import read_metrics
from pretrain.workdir.workdir import Workdir
from tests.pretrain.inference.test_in_context import TEXT, make_trained
from tests.small_store import write_store

LENGTH = 12
CONFIG = Gpt2Config(vocab=128, length=40, width=16, depth=1, num_heads=2, mlp=24)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """(folder, held-out documents of a store) of a GPT-2 that was trained in bfloat16."""
    folder = tmp_path_factory.mktemp("evaluate")
    trained = make_trained(CONFIG, 3, 110, layout="gpt", algorithm="bpe")
    documents = [[ids] for ids in trained.vocabulary.encode_batch(TEXT[:6])]
    write_store(folder / "store", trained.vocabulary, documents, heldout=documents[:4])
    data = Data(store=str(folder / "store"), objective=CausalLm(length=LENGTH), batch_size=8)
    run = dataclasses.replace(trained.run, data=data, train=Train(compute_dtype="bfloat16"))
    start_workdir(folder / "run", run, trained.params, trained.vocabulary)
    return folder / "run", [sentence for (sentence,) in documents[:4]]


def evaluate(workdir, capsys, *words):
    assert main(["evaluate", "--workdir", str(workdir), "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.more
def test_scores_are_those_of_the_exported_model_with_each_token_once(workdir, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, documents = workdir
    assert main(["export", "--workdir", str(folder), "--output", str(tmp_path / "hf")]) == 0
    capsys.readouterr()
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "hf").eval()
    tokens = list(documents[0])
    for document in documents[1:]:
        tokens += [model.config.eos_token_id, *document]
    assert (len(tokens) - 1) % LENGTH  # the last row is not full by itself
    nats = []
    for first in range(1, len(tokens), LENGTH):  # targets of a row, after the row before
        row = tokens[min(first - 1, len(tokens) - LENGTH - 1) :][: LENGTH + 1]
        with torch.no_grad():
            logits = model(torch.tensor([row[:-1]])).logits[0].double()
        log_probs = torch.log_softmax(logits, -1)[range(LENGTH), row[1:]]
        nats += (-log_probs[-len(tokens[first : first + LENGTH]) :]).tolist()
    assert len(nats) == len(tokens) - 1
    scores = evaluate(folder, capsys, "--dtype", "float32")
    assert scores["targets"] == len(nats) and scores["dtype"] == "float32"
    assert scores["causal_lm"] == pytest.approx(np.mean(nats), rel=1e-5)


def test_the_dtype_of_the_run_is_the_default_and_is_named(workdir, capsys):
    folder, _ = workdir
    default = evaluate(folder, capsys)
    full = evaluate(folder, capsys, "--dtype", "float32")
    assert default["dtype"] == "bfloat16" and full["dtype"] == "float32"
    assert default == evaluate(folder, capsys, "--dtype", "bfloat16")
    assert default["loss"] != full["loss"] == pytest.approx(default["loss"], rel=0.02)
    assert main(["evaluate", "--workdir", str(folder)]) == 0
    assert (
        " targets, computed in bfloat16 (as predict and exported models compute: --dtype float32)"
        in capsys.readouterr().out
    )
    assert main(["evaluate", "--workdir", str(folder), "--dtype", "float32"]) == 0
    assert " targets, computed in float32\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "7"], "these flags need --task FILE: --seed"),
        (
            ["--delimiter", "x", "--shots", "2"],
            "these flags need --task FILE: --shots, --delimiter",
        ),
        (["--task", "f", "--split", "train"], "give --task or --split, not both"),
        (["--task", "f", "--labelled", "g"], "give --task or --labelled, not both"),
    ],
)
def test_flags_that_would_have_no_effect_are_refused(words, message, capsys):
    assert main(["evaluate", "--workdir", "absent", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_scores_of_a_diverged_model_are_null_in_json(workdir, monkeypatch, capsys):
    scores = {"rows": 1, "targets": 2.0, "loss": float("nan")}
    monkeypatch.setattr("pretrain.cli.evaluate.score_store", lambda *_: (3, "s", scores))
    assert evaluate(workdir[0], capsys)["loss"] is None
    monkeypatch.setattr("pretrain.cli.evaluate.score_questions", lambda *_: (scores, []))
    assert evaluate(workdir[0], capsys, "--task", "f")["loss"] is None


@pytest.mark.parametrize("flag", ["--labelled", "--store", "--task"])
def test_an_empty_path_is_not_the_store_of_the_run(workdir, flag, capsys):
    """Such as from a variable of the shell that is not set."""
    assert main(["evaluate", "--workdir", str(workdir[0]), flag, ""]) == 2
    assert f"{flag} is given without a path" in capsys.readouterr().err


def test_another_batch_size_has_the_same_scores(workdir, capsys):
    """Such as a smaller one where memory for the run's is missing."""
    folder, _ = workdir
    default = evaluate(folder, capsys, "--dtype", "float32")
    larger = evaluate(folder, capsys, "--dtype", "float32", "--batch-size", "16")
    assert larger["rows"] == default["rows"] and larger["targets"] == default["targets"]
    assert larger["loss"] == pytest.approx(default["loss"], rel=1e-6)
    for size in ("7", "0"):  # does not divide over the eight devices
        assert main(["evaluate", "--workdir", str(folder), "--batch-size", size]) == 2
        assert f"data.batch_size={size} does not divide into" in capsys.readouterr().err


def test_the_held_out_split_is_the_files_of_validation(workdir, tmp_path, capsys):
    """Whatever the text for training is; `train` scores the same rows."""
    trained = make_trained(CONFIG, 3, 110, layout="gpt", algorithm="bpe")
    (tmp_path / "valid.txt").write_text("\n".join(TEXT[:3]))
    trained.vocabulary.save(tmp_path / "vocabulary")
    scores = []
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(" ".join(TEXT[3 + number : 6]))
        argv = [
            "prepare",
            str(tmp_path / f"{number}.txt"),
            "--output",
            str(tmp_path / f"s{number}"),
        ]
        argv += ["--validation", str(tmp_path / "valid.txt"), "--document", "record"]
        assert main([*argv, "--vocabulary", str(tmp_path / "vocabulary")]) == 0
        data = Data(
            store=str(tmp_path / f"s{number}"), objective=CausalLm(length=LENGTH), batch_size=8
        )
        run = dataclasses.replace(
            trained.run,
            data=data,
            train=Train(steps=1, compute_dtype="float32"),
            evaluate=Evaluate(every=1, samples=0),
        )
        start_workdir(tmp_path / f"w{number}", run, trained.params, trained.vocabulary)
        capsys.readouterr()
        scores.append(evaluate(tmp_path / f"w{number}", capsys))
    assert scores[0]["loss"] == scores[1]["loss"]
    ids = trained.vocabulary.encode_batch(TEXT[:3])
    assert scores[0]["targets"] == sum(map(len, ids)) + len(ids) - 2  # with the ends between texts
    train(Workdir.open(tmp_path / "w0").run, tmp_path / "w0")
    (row,) = [
        row for row in read_metrics(tmp_path / "w0" / "metrics.jsonl") if "heldout_loss" in row
    ]
    assert row["heldout_targets"] == scores[0]["targets"]


def test_questions_are_scored_in_the_chosen_dtype(workdir, tmp_path, capsys):
    task = tmp_path / "task.jsonl"
    task.write_text('{"text": "The quick brown fox jumps over the lazy dog"}\n')
    default = evaluate(workdir[0], capsys, "--task", str(task))
    full = evaluate(workdir[0], capsys, "--task", str(task), "--dtype", "float32")
    assert default["dtype"] == "bfloat16" and full["dtype"] == "float32"
    assert default["perplexity"] != full["perplexity"]


def test_an_unknown_dtype_is_refused(workdir, capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "--workdir", str(workdir[0]), "--dtype", "int8"])
    assert "--dtype: invalid choice: 'int8'" in capsys.readouterr().err


def test_a_store_that_was_prepared_again_is_not_scored(tmp_path, capsys):
    """Its held-out documents may be those that the run was trained on."""
    trained = make_trained(CONFIG, 3, 110, layout="gpt", algorithm="bpe")
    documents = [[ids] for ids in trained.vocabulary.encode_batch(TEXT[:6])]
    store, again = tmp_path / "store", tmp_path / "again"
    write_store(store, trained.vocabulary, documents[2:], heldout=documents[:2])
    data = Data(store=str(store), objective=CausalLm(length=LENGTH), batch_size=8)
    run = dataclasses.replace(trained.run, data=data, train=Train(steps=1))
    train(run, tmp_path / "run")
    capsys.readouterr()
    before = evaluate(tmp_path / "run", capsys)
    shutil.rmtree(store)
    write_store(store, trained.vocabulary, documents[:4], heldout=documents[4:])
    assert main(["evaluate", "--workdir", str(tmp_path / "run")]) == 2
    assert f"{store} was prepared again: its held-out doc" in capsys.readouterr().err
    assert main(["evaluate", "--workdir", str(tmp_path / "run"), "--store", str(store)]) == 2
    write_store(again, trained.vocabulary, documents[2:], heldout=documents[:2])
    after = evaluate(tmp_path / "run", capsys, "--store", str(again))
    assert {**after, "store": ""} == {**before, "store": ""}
