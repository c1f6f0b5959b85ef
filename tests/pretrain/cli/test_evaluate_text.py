"""`evaluate --text FILE` scores every target of another text, and leaves nothing."""

import dataclasses
import gzip
import json
import pathlib
import tempfile

import pytest

from data.config import Data
from data.objectives import OBJECTIVES, CausalLm, MaskedLm, Seq2Seq
from data.vocabulary.load import train_vocabulary
from models.config.gpt2 import Gpt2Config
from pretrain import api
from pretrain.__main__ import main
from pretrain.config import Train
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.conftest import BERT, RUNS, TRANSFORMER, make_texts
from tests.pretrain.inference.test_in_context import make_trained
from tests.small_store import write_store

LENGTH = 16
CONFIG = Gpt2Config(vocab=256, length=40, width=16, depth=1, num_heads=2, mlp=24)
LINES = make_texts(80)[20:]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Return the folder of temporary files, which each test leaves empty."""
    folder = tmp_path_factory.mktemp("scratch")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    yield folder
    tempfile.tempdir = before


@pytest.fixture
def make_run(tmp_path):
    """Return a function (objective, layout) that starts a workdir with few held-out documents."""

    def start(objective, config=CONFIG, layout="gpt"):
        trained = make_trained(config, 3, 110, layout="gpt", algorithm="bpe")
        vocabulary = train_vocabulary(make_texts(600), 36, layout=layout)
        documents = [[ids] for ids in vocabulary.encode_batch(make_texts(20))]
        write_store(tmp_path / "store", vocabulary, documents, heldout=documents[:2])
        data = Data(store=str(tmp_path / "store"), objective=objective, batch_size=8)
        run = dataclasses.replace(trained.run, data=data, train=Train(compute_dtype="float32"))
        start_workdir(tmp_path / "run", run, trained.params, vocabulary)
        return tmp_path / "run"

    return start


def evaluate(workdir, capsys, *words):
    assert main(["evaluate", "--workdir", str(workdir), "--json", *map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_next_token_of_a_text_is_a_target_once(make_run, tmp_path, scratch, capsys):
    workdir = make_run(CausalLm(length=LENGTH))
    text = tmp_path / "other.txt"
    text.write_text("\n".join(LINES))
    scores = evaluate(workdir, capsys, "--text", text)
    assert scores["tokens"] > 10 * LENGTH and scores["targets"] == scores["tokens"] - 1
    assert scores["text"] == str(text) and "store" not in scores and "split" not in scores
    assert not [path for path in scratch.iterdir() if path.is_dir()]

    # The same rows as in a store without a held-out part.
    argv = ["prepare", str(text), "--output", str(tmp_path / "prepared"), "--held-out", "0"]
    assert main([*argv, "--vocabulary", str(workdir / "vocabulary")]) == 0
    capsys.readouterr()
    stored = evaluate(workdir, capsys, "--store", tmp_path / "prepared", "--split", "train")
    assert {name: scores[name] for name in ("loss", "targets", "perplexity", "rows")} == {
        name: stored[name] for name in ("loss", "targets", "perplexity", "rows")
    }


def test_all_forms_of_a_text_have_the_same_scores(make_run, tmp_path, scratch, capsys):
    workdir = make_run(CausalLm(length=LENGTH))
    body = "\n".join(LINES)
    (tmp_path / "a.txt").write_text(body)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(body.encode()))
    (tmp_path / "a.jsonl").write_text(json.dumps({"words": body}) + "\n")
    (tmp_path / "wiki.valid.tokens").write_text(body)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text(body)
    first = evaluate(workdir, capsys, "--text", tmp_path / "a.txt")
    for words in (
        ["a.txt.gz"],
        ["folder"],
        ["a.jsonl", "--field", "words"],
        ["wiki.valid.tokens", "--as", "txt"],
    ):
        scores = evaluate(workdir, capsys, "--text", tmp_path / words[0], *words[1:])
        assert scores | {"text": ""} == first | {"text": ""}, words
    lines = evaluate(workdir, capsys, "--text", tmp_path / "a.txt", "--document", "record")
    assert lines["targets"] == lines["tokens"] + len(LINES) - 2  # an end of text between them
    again = api.evaluate(workdir, text=tmp_path / "a.txt")
    assert again["loss"] == first["loss"] and again["tokens"] == first["tokens"]
    assert not [path for path in scratch.iterdir() if path.is_dir()]


def test_masks_are_those_of_the_run_and_fixed(make_run, tmp_path, scratch, capsys):
    objective = MaskedLm(length=32, max_predictions=6, rows="packed")
    workdir = make_run(objective, BERT, "bert")
    text = tmp_path / "other.txt"
    text.write_text("\n".join(LINES))
    first = evaluate(workdir, capsys, "--text", text)
    assert first["targets"] == pytest.approx(objective.mask_rate * first["tokens"], rel=0.2)
    assert evaluate(workdir, capsys, "--text", text) == first


def test_pairs_are_read_as_pairs(make_run, tmp_path, scratch, capsys):
    workdir = make_run(Seq2Seq(length=64, target_length=64), TRANSFORMER, "transformer")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(LINES[::2], LINES[1::2])))
    scores = evaluate(workdir, capsys, "--text", pairs)
    assert scores["targets"] > 100


def test_the_terminal_names_the_text_and_its_tokens(make_run, tmp_path, scratch, capsys):
    workdir = make_run(CausalLm(length=LENGTH))
    (tmp_path / "a.txt").write_bytes(b"\xff" + "\n".join(LINES).encode())
    assert main(["evaluate", "--workdir", str(workdir), "--text", str(tmp_path / "a.txt")]) == 0
    out, err = capsys.readouterr()
    assert f"step 0 on {tmp_path / 'a.txt'}: " in out and " tokens, " in out
    assert "UTF-8" in err  # the repair is named


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", ""], "--text is given without a path"),
        (["--text", "t.txt", "--store", "s"], "--text cannot be combined with --store"),
        (["--text", "t.txt", "--labelled", "s"], "--text cannot be combined with --labelled"),
        (["--text", "t.txt", "--split", "train"], "--text cannot be combined with --split"),
        (["--as", "txt"], "these flags need --text FILE: --as"),
        (["--document", "record"], "these flags need --text FILE: --document"),
        (["--text", "absent.txt"], "absent.txt: no such file"),
        (["--text", "t.bin"], "--as txt reads any file as .txt"),
        (["--text", "empty.txt"], "no text in empty.txt"),
        (
            ["--text", "short.txt"],
            "short.txt: there are only 1 tokens, fewer than the 17 of one row",
        ),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    make_run, tmp_path, scratch, words, message, capsys, monkeypatch
):
    workdir = make_run(CausalLm(length=LENGTH))
    monkeypatch.chdir(tmp_path)
    for name, text in (("t.txt", "a b c"), ("t.bin", "a"), ("empty.txt", "\n"), ("short.txt", "a")):
        pathlib.Path(name).write_text(text)
    capsys.readouterr()
    assert main(["evaluate", "--workdir", str(workdir), *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not [path for path in scratch.iterdir() if path.is_dir()]


def test_labelled_models_are_refused(tmp_path, stores, capsys):
    from models import build
    from pretrain.training.state import init_params

    run = RUNS["classifier"]
    start_workdir(
        tmp_path / "run",
        run,
        init_params(build(run.model), run.data.objective, 0),
        stores["bert"].encoding,
    )
    (tmp_path / "t.txt").write_text("a b c")
    assert (
        main(["evaluate", "--workdir", str(tmp_path / "run"), "--text", str(tmp_path / "t.txt")])
        == 2
    )
    assert (
        "classification does not learn from plain text: use --labelled FILE"
        in capsys.readouterr().err
    )


def test_each_objective_says_how_it_reads_a_text():
    assert {name for name, kind in OBJECTIVES.items() if not kind.text_documents} >= {
        "classification",
        "tagging",
        "text2text",
        "image_classification",
        "words_and_pictures",
    }
    assert OBJECTIVES["seq2seq"].text_documents == "pair"
    assert OBJECTIVES["partitioned_fields"].text_documents == "fields"
    assert OBJECTIVES["masked_lm"].text_documents == "file"
