"""`predict` of a model of articles: the prompt has the other fields in order, the token that ends
the field ends the text, and what the model cannot read is an error.
"""

import json

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm, PartitionedFields
from models import build
from models.config.gpt2 import Gpt2Config
from models.generation.sampling import Sample
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import Run
from pretrain.inference.field_generation import FieldWriter
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained
from tests.article_store import prepare_articles

MODEL = Gpt2Config(
    vocab=312, length=96, width=16, depth=1, num_heads=2, mlp=32, dropout=0.0, attention_dropout=0.0
)
ARTICLE = {"headline": "Winter river", "authors": ["Stone", "Letter"], "body": "Engine garden."}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return prepare_articles(tmp_path_factory.mktemp("articles")).vocabulary


@pytest.fixture(scope="module")
def workdir(vocabulary, tmp_path_factory):
    """Return the workdir of a model whose probabilities are far from uniform."""
    run = Run(model=MODEL, data=Data(objective=PartitionedFields(length=64)))
    params = jax.tree.map(lambda leaf: 8 * leaf, make_initializer(run)())
    folder = tmp_path_factory.mktemp("workdir") / "w"
    start_workdir(folder, run, params, vocabulary)
    return str(folder)


def predict(workdir, capsys, *words):
    """Return the results that `predict --json` prints."""
    assert main(["predict", "--workdir", workdir, "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def write_prompt(vocabulary, field, **fields):
    """Return the ids of the fields in the given order and of the token that begins another."""
    ids = []
    for name, text in fields.items():
        ids += [vocabulary.pieces.index(f"<|begin{name}|>"), *vocabulary.encode(text)]
        ids.append(vocabulary.pieces.index(f"<|end{name}|>"))
    return [*ids, vocabulary.pieces.index(f"<|begin{field}|>")]


def test_greedy_fields_are_those_of_the_whole_row(workdir, vocabulary, capsys):
    """Token by token, by calls on the row so far, from the fields in the canonical order."""
    params, apply = open_trained(workdir).params, jax.jit(build(MODEL).apply)
    prompts = {
        "body": write_prompt(vocabulary, "body", authors="Stone, Letter", headline="Winter river"),
        "headline": write_prompt(vocabulary, "headline", authors="Stone, Letter", body="Engine garden."),
        "date": write_prompt(vocabulary, "date", authors="Stone, Letter", headline="Winter river", body="Engine garden."),
    }  # fmt: skip
    for field, ids in prompts.items():
        end, written = vocabulary.pieces.index(f"<|end{field}|>"), []
        while len(written) < 12:
            row = ids + written  # what follows it changes nothing before
            padded = np.pad(row, (0, MODEL.length - len(row)))[None].astype(np.int32)
            logits = apply({"params": params}, padded)[0, len(row) - 1]
            written.append(int(logits[: vocabulary.size].argmax()))
            if written[-1] == end:
                break
        text = vocabulary.decode([i for i in written if not vocabulary.special[i]]).strip()
        (result,) = predict(
            workdir, capsys, json.dumps(ARTICLE), "--field", field, "--length", "12"
        )
        assert result["written"] == text and result["field"] == field


def test_the_end_of_the_field_ends_the_text(workdir, vocabulary, monkeypatch):
    writer = FieldWriter(open_trained(workdir), 12, 4, Sample(top_p=0.9), field="date")
    end, other = (vocabulary.pieces.index(f"<|end{name}|>") for name in ("date", "body"))
    ids = vocabulary.encode("May 3, 2019")
    monkeypatch.setattr(
        writer,
        "generate_batch",
        lambda rows, numbers: np.array([[other, *ids, end, *ids]] * len(rows)),
    )
    assert writer([{}], [None]) == [{"field": "date", "written": "May 3, 2019"}]


def test_a_file_of_articles_is_read_and_samples_depend_on_the_seed(workdir, tmp_path, capsys):
    """The body of each is generated again; other keys of a record are returned as they are."""
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(ARTICLE | {"id": i}) + "\n" for i in range(3)))
    words = ["--input", str(path), "--length", "8", "--top-p", "0.9"]
    first, again = (predict(workdir, capsys, *words) for _ in range(2))
    other = predict(workdir, capsys, *words, "--seed", "1")
    texts = [[result["written"] for result in results] for results in (first, again, other)]
    assert texts[0] == texts[1] != texts[2] and len({*texts[0]}) == 3
    assert [result["id"] for result in first] == [0, 1, 2]
    assert all(result["headline"] == ARTICLE["headline"] for result in first)


def test_an_article_without_a_field_is_written_from_nothing(workdir, capsys):
    assert main(["predict", "--workdir", workdir, "{}", "--length", "4"]) == 0
    assert capsys.readouterr().out.startswith("  body: ")


def test_an_article_is_shown_with_its_fields(workdir, capsys):
    assert main(["predict", "--workdir", workdir, json.dumps(ARTICLE), "--length", "4"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["authors: Stone, Letter", "headline: Winter river"]
    assert shown[2].startswith("  body: ") and "Engine" not in "".join(shown[:2])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (['{"title": "A"}'], "field 'title' is none of the model's: domain, date, authors"),
        (['{"date": 3}'], "field 'date' is 3; a field is a text, a list of texts, or left out"),
        (["A headline"], "not JSON"),
        (["{}", "--field", "title"], "--field title: the model's fields are domain, date"),
        (["{}", "--length", "96"], "1 tokens and 96 more are to write (--length), the model reads"),
        (["{}", "--top", "3"], "--top is for encoders"),
    ],
)
def test_what_the_model_cannot_read_is_named(workdir, capsys, words, message):
    assert main(["predict", "--workdir", workdir, *words]) == 2
    assert message in capsys.readouterr().err


def test_records_of_a_file_without_fields_are_named(workdir, tmp_path, capsys):
    path = tmp_path / "other.jsonl"
    path.write_text('{"title": "A"}\n')
    assert main(["predict", "--workdir", workdir, "--input", str(path)]) == 2
    assert "other.jsonl:1: none of the model's fields: domain" in capsys.readouterr().err


def test_another_model_has_no_fields(vocabulary, tmp_path, capsys):
    run = Run(model=MODEL, data=Data(objective=CausalLm(length=64)))
    start_workdir(tmp_path / "w", run, make_initializer(run)(), vocabulary)
    assert main(["predict", "--workdir", str(tmp_path / "w"), "A", "--field", "body"]) == 2
    assert "--field body: this model was not trained on articles" in capsys.readouterr().err


def test_the_exported_tokenizer_has_the_tokens_of_the_fields(workdir, vocabulary, tmp_path):
    """A prompt that is written with their names has the ids with which the model was trained."""
    import tokenizers

    assert main(["export", "--workdir", workdir, "--output", str(tmp_path / "hf")]) == 0
    exported = tokenizers.Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    text = "<|beginheadline|>Winter river<|endheadline|><|beginbody|>"
    expected = write_prompt(vocabulary, "body", headline="Winter river")
    assert exported.encode(text, add_special_tokens=False).ids == expected
