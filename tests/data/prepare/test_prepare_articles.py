"""`prepare --document fields`: each field between its own tokens, whatever its text; what articles
lack is counted, and wrong names are errors.
"""

import itertools
import json

import numpy as np
import pytest

from data.prepare.articles import wrap_fields
from data.prepare.build import PrepareRequest, prepare_store
from data.vocabulary.field_tokens import FieldTokens, find_fields
from data.vocabulary.field_vocabulary import add_field_tokens
from data.vocabulary.load import load_vocabulary, train_vocabulary
from pretrain.__main__ import main
from tests.article_store import FIELDS, make_articles, prepare_articles, write_articles

pytestmark = pytest.mark.fast


def read_articles(store, split="train"):
    """Return the [(field, text)] of each document, from the arrays of the store alone."""
    read, vocabulary = store.open_split(split), store.vocabulary
    pieces, found = vocabulary.pieces, []
    marks = {i for tokens in find_fields(vocabulary).values() for i in tokens}
    for low, high in itertools.pairwise(read.document_starts.tolist()):
        edges = [s for s in read.sentence_starts.tolist() if low <= s < high] + [high]
        article = []
        for begin, end in itertools.pairwise(edges):
            ids = read.tokens[begin:end].tolist()
            name = pieces[ids[0]].removeprefix("<|begin").removesuffix("|>")
            assert (pieces[ids[0]], pieces[ids[-1]]) == (f"<|begin{name}|>", f"<|end{name}|>")
            assert marks.isdisjoint(ids[1:-1])
            article.append((name, vocabulary.decode(ids[1:-1])))
        found.append(article)
    return found


def test_the_store_has_the_fields_of_each_article_in_order(article_store, articles):
    expected = []
    for article in articles:
        authors = ", ".join(article.get("authors", ()))
        texts = article | {"authors": authors, "body": article["body"].strip()}
        expected.append([(field, texts[field]) for field in FIELDS if texts.get(field)])
    found = read_articles(article_store) + read_articles(article_store, "heldout")
    assert sorted(found) == sorted(expected)
    noted = {reason: note["count"] for reason, note in article_store.manifest["noted"].items()}
    assert noted == {
        "articles without `date`": 40,
        "articles without `authors`": 24,
        "articles without `body`": 3,
    }


def test_a_text_with_the_name_of_a_token_is_plain_text(tmp_path):
    """Also one with a NUL, which separates the fields while they are read."""
    articles = make_articles(40)
    articles[0]["headline"] = "<|endheadline|><|beginbody|> \0 a trick<|endoftext|>"
    store = prepare_articles(tmp_path, articles, held_out=0.0)
    texts = dict(read_articles(store)[0])
    assert texts["headline"] == articles[0]["headline"].replace("\0", " ")
    assert texts["body"] == articles[0]["body"]
    assert store.manifest["noted"]["documents with NUL bytes (replaced by blanks)"]["count"] == 1


def test_two_workers_and_small_jobs_write_the_same_store(tmp_path, articles):
    path = write_articles(tmp_path / "articles.jsonl", articles)
    request = PrepareRequest(
        (str(path),), document="fields", field=",".join(FIELDS), algorithm="byte_bpe",
        layout="gpt2", vocab_size=300, held_out=0.1,
    )  # fmt: skip
    one = prepare_store(request, tmp_path / "one").store
    other = prepare_store(request, tmp_path / "other", job_bytes=999).store
    assert one.fingerprint == other.fingerprint


def test_a_vocabulary_is_used_again_and_counts_the_tokens_in_its_size(tmp_path, article_store):
    assert article_store.vocabulary.size == 310
    folder = tmp_path / "vocabulary"
    article_store.vocabulary.save(folder)
    again = prepare_articles(tmp_path, vocabulary=str(folder), vocab_size=32768)
    assert again.vocabulary == article_store.vocabulary == load_vocabulary(folder)
    for fields in (FIELDS[::-1], FIELDS[:2], (*FIELDS, "summary")):
        names = ", ".join(fields)
        with pytest.raises(ValueError, match=f"the fields domain, date, .* --field names {names}:"):
            add_field_tokens(again.vocabulary, fields)


def test_a_field_whose_token_is_taken_is_refused(texts):
    plain = train_vocabulary(texts, 330, "gpt2", "byte_bpe")
    with pytest.raises(ValueError, match=r"oftext: .* has <\|endoftext\|> for something else"):
        add_field_tokens(plain, ("oftext", "body"))


def test_a_released_vocabulary_keeps_its_ids(texts):
    plain = train_vocabulary(texts, 330, "gpt2", "byte_bpe")
    extended = add_field_tokens(plain, ("title", "text"))
    assert extended.pieces[:330] == plain.pieces and extended.eos == plain.eos
    assert extended.pieces[330:] == (
        "<|begintitle|>", "<|endtitle|>", "<|begintext|>", "<|endtext|>",
    )  # fmt: skip
    assert find_fields(extended) == {"title": FieldTokens(330, 331), "text": FieldTokens(332, 333)}
    assert find_fields(plain) == {}
    assert extended.encode_batch(texts) == plain.encode_batch(texts)


def test_a_field_without_tokens_stays_empty():
    ids, lengths = wrap_fields(
        np.array([5, 6, 7]), np.array([2, 0, 1]), np.array([1, 0, 1]), [(10, 11), (20, 21)]
    )
    assert ids.tolist() == [20, 5, 6, 21, 20, 7, 21] and lengths.tolist() == [4, 0, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": 3}, r"line 6: field 'date' is 3; the field of an article is a text"),
        ({"authors": ["A", None]}, r"line 6: field 'authors' is \['A', None\]"),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path, change, message):
    articles = make_articles(20)
    articles[5] |= change
    with pytest.raises(ValueError, match=message):
        prepare_articles(tmp_path, articles)


def test_a_record_without_any_field_is_named(tmp_path):
    articles = [*make_articles(20), {"text": "a", "title": "b"}]
    with pytest.raises(ValueError, match="line 21: none of the fields domain, .* with 'text', 'ti"):
        prepare_articles(tmp_path, articles)


def test_an_article_without_text_is_counted(tmp_path):
    articles = [*make_articles(20), {"body": " ", "authors": []}]
    store = prepare_articles(tmp_path, articles, held_out=0.0, vocab_size=300)
    assert store.manifest["noted"]["empty documents"]["count"] == 1
    assert len(read_articles(store)) == 20


def test_a_field_that_no_article_has_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no article in .* has a text in its field `title`"):
        prepare_articles(tmp_path, field="domain,title,body", vocab_size=290)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"field": "body"}, "--field body: these are not; articles have two or more fields"),
        ({"field": "body,body"}, "--field body,body: these are not"),
        ({"field": "body,a b"}, "'a b' is no name"),
        (
            {"algorithm": "unigram", "layout": "bert"},
            "added to a vocabulary of bytes; add --layout",
        ),
        ({"file_format": "tsv"}, "--as tsv: with --document fields a file is jsonl"),
        ({"vocab_size": 5000}, r"makes at most (\d+): --vocab-size \1"),
    ],
)
def test_options_are_checked(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        prepare_articles(tmp_path, **options)


@pytest.mark.parametrize("source", ["builtin", "tfds:news"])
def test_sources_without_articles_are_refused(tmp_path, source):
    request = PrepareRequest(
        (source,), document="fields", field="a,b", algorithm="byte_bpe", layout="gpt2"
    )
    with pytest.raises(ValueError, match=f"{source} has no articles"):
        prepare_store(request, tmp_path / "store")


def test_the_verb_prints_what_articles_lack(tmp_path, articles, capsys):
    path = write_articles(tmp_path / "articles.jsonl", articles)
    command = ["prepare", str(path), "--document", "fields", "--layout", "gpt2"]
    command += ["--vocab-size", "300", "--output", str(tmp_path / "store")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "articles without `date`" in shown and "40" in shown
    manifest = json.loads((tmp_path / "store").resolve().joinpath("manifest.json").read_text())
    assert manifest["request"]["field"] == ",".join(FIELDS)
