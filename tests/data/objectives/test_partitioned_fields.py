"""Articles are written as two sets of fields, each in order, with the shares of the paper.

Zellers et al. (2019), section 3.1. Rows are compared with a slow reference that reads the store.
"""

import itertools
from collections import Counter

import numpy as np
import pytest

from data.config import Data
from data.objectives import PartitionedFields
from data.pipeline import Stream
from tests.article_store import FIELDS

BATCH = 16


def make_stream(store, split="train", **settings):
    objective = PartitionedFields(**dict(length=128) | settings)
    return Stream(store, Data(objective=objective, batch_size=BATCH), split=split, seed=5)


def read_rows(stream, count):
    """Return the ids of the first rows, without padding."""
    rows = []
    for step in range(-(-count // BATCH)):
        batch = stream.build_batch(step)
        for i in range(BATCH):
            used = batch["label_weights"][i] > 0
            rows.append([int(batch["token_ids"][i, 0]), *batch["labels"][i, used].tolist()])
    return rows[:count]


def split_row(row, vocabulary):
    """Return [(field, text)] of a row of whole fields, read token by token."""
    parts, current = [], None
    for token in row:
        piece = vocabulary.pieces[token]
        if piece.startswith("<|begin"):
            assert current is None
            current = (piece[7:-2], [])
        elif piece.startswith("<|end") and piece != "<|endoftext|>":
            assert current[0] == piece[5:-2]
            parts, current = [*parts, (current[0], vocabulary.decode(current[1]))], None
        else:
            current[1].append(token)
    assert current is None
    return parts


def flatten(article):
    """Return {field: text} as the store must have it."""
    texts = {}
    for field in FIELDS:
        value = article.get(field)
        text = ", ".join(value) if isinstance(value, list) else value or ""
        if text.strip():
            texts[field] = text.strip()
    return texts


@pytest.fixture(scope="module")
def sampled(article_store):
    """Return [(field, text)] of each of 1,600 rows."""
    stream = make_stream(article_store)
    return [split_row(row, stream.vocabulary) for row in read_rows(stream, 1600)]


def test_rows_are_articles(sampled, articles):
    """Each row has fields of one article, unchanged; missing fields have no tokens."""
    known = [flatten(article) for article in articles]
    by_field = {(field, text) for article in known for field, text in article.items()}
    bodies = {article["body"]: article for article in known if "body" in article}
    for parts in sampled:
        assert {*parts} <= by_field and len(dict(parts)) == len(parts) > 0
        if "body" in dict(parts):
            assert {*parts} <= {*bodies[dict(parts)["body"]].items()}


def test_fields_are_in_two_sets_each_in_order(sampled):
    """A row steps back in the canonical order at most once, and all pairs of fields are in both
    orders about equally often.
    """
    before = Counter()
    for parts in sampled:
        places = [FIELDS.index(field) for field, _ in parts]
        assert sum(b < a for a, b in itertools.pairwise(places)) <= 1
        before.update(itertools.combinations(places, 2))
    for a, b in itertools.combinations(range(len(FIELDS)), 2):
        # b comes first if it is in the first set and a in the second.
        share = before[b, a] / (before[a, b] + before[b, a])
        assert share == pytest.approx(0.25, abs=0.07)


def test_fields_are_dropped_at_the_rates_of_the_paper(sampled, articles):
    known = {flat["body"]: flat for flat in map(flatten, articles) if "body" in flat}
    alone, retained, possible = 0, 0, 0
    with_body = [dict(parts) for parts in sampled if "body" in dict(parts)]
    for parts in with_body:
        if len(parts) == 1:
            alone += 1
        else:
            retained += len(parts) - 1
            possible += len(known[parts["body"]]) - 1
    # 0.35 by intent, and 0.1 ** (2 to 4) of the rest by chance.
    assert alone / len(with_body) == pytest.approx(0.352, abs=0.04)
    assert retained / possible == pytest.approx(0.9, abs=0.02)


def test_an_article_without_a_body_keeps_a_field(article_store):
    """Its metadata would all be left out; a row without a token has nothing to predict."""
    rows = read_rows(make_stream(article_store, body_only_rate=1.0), 400)
    vocabulary = article_store.vocabulary
    kinds = Counter(tuple(field for field, _ in split_row(row, vocabulary)) for row in rows)
    assert kinds.pop(("body",)) > 300 and sum(kinds.values()) > 0
    assert all({"domain", "headline"} <= {*kind} for kind in kinds)


def test_without_chance_all_fields_are_there(article_store, articles):
    rows = read_rows(make_stream(article_store, drop_rate=0.0, body_only_rate=0.0), 200)
    texts = {tuple(sorted(split_row(row, article_store.vocabulary))) for row in rows}
    assert texts <= {tuple(sorted(flatten(article).items())) for article in articles}


def test_labels_are_the_next_token_and_padding_has_no_weight(article_store):
    batch = make_stream(article_store).build_batch(3)
    used = batch["label_weights"] > 0
    np.testing.assert_array_equal(
        batch["token_ids"][:, 1:][used[:, :-1]], batch["labels"][:, :-1][used[:, :-1]]
    )
    assert not (used[:, 1:] & ~used[:, :-1]).any() and not used.all() and used[:, 0].all()
    assert (batch["labels"][~used] == article_store.vocabulary.eos).all()


def test_a_longer_article_is_a_window_at_any_place(article_store):
    """All rows of 12 tokens are runs of the longer row of the same draws; each place occurs."""
    short, long = make_stream(article_store, length=12), make_stream(article_store, length=300)
    begins = set()
    for step in range(40):
        a, b = short.build_batch(step), long.build_batch(step)
        for i in range(BATCH):
            whole = [int(b["token_ids"][i, 0]), *b["labels"][i][b["label_weights"][i] > 0]]
            row = [int(a["token_ids"][i, 0]), *a["labels"][i][a["label_weights"][i] > 0]]
            places = [p for p in range(len(whole)) if whole[p : p + len(row)] == row]
            assert places and len(row) == min(13, len(whole))
            begins.add((len(whole), places[0], places[-1]))
    assert any(first == last == 0 < length - 13 for length, first, last in begins)
    assert any(first == last == length - 13 > 0 for length, first, last in begins)


def test_evaluation_scores_each_article_once(article_store):
    stream = make_stream(article_store, split="heldout")
    batches = [stream.build_evaluation_batch(i) for i in range(stream.num_evaluation_batches)]
    weighed = sum(int((batch["label_weights"].sum(axis=1) > 0).sum()) for batch in batches)
    assert weighed == len(article_store.open_split("heldout").document_starts) - 1 > 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 2}, "length=2; a row holds a field"),
        ({"drop_rate": 1.5}, "drop_rate=1.5; a probability is between 0 and 1"),
        ({"body_only_rate": -0.1}, "body_only_rate=-0.1"),
        ({"body": "text"}, "body=text; the store's articles have the fields domain, date"),
    ],
)
def test_settings_are_checked(article_store, settings, message):
    with pytest.raises(ValueError, match=message):
        make_stream(article_store, **settings)


def test_a_store_without_fields_is_refused(bytes_store):
    with pytest.raises(ValueError, match="prepare the store with --document fields"):
        make_stream(bytes_store)


def test_documents_that_are_not_articles_are_refused(article_store, tmp_path):
    """A vocabulary with the tokens of fields may have encoded plain text."""
    from tests.small_store import write_store

    vocabulary = article_store.vocabulary
    documents = [[vocabulary.encode("a river and a stone")]] * 30
    store = write_store(tmp_path / "plain", vocabulary, documents, heldout=documents[:2])
    with pytest.raises(ValueError, match="not made of fields, each between its two tokens"):
        make_stream(store)
