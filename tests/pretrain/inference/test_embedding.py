"""Vectors of texts, their nearest neighbours, and the scores of a search."""

import json

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives.contrastive import Contrastive
from models import build
from models.config.embedder import EmbedderConfig
from pretrain.config import Run
from pretrain.evaluation.retrieval import (
    compute_ndcg,
    compute_recall,
    compute_reciprocal_rank,
    score_rankings,
)
from pretrain.inference.vectors import hard_negatives, nearest
from pretrain.inference.vectors.embedding import TextEmbedder, choose_length, normalize_rows
from pretrain.inference.vectors.hard_negatives import mine_negatives
from pretrain.workdir.trained import Trained
from tests.pretrain.finetune.encoders import TEXT, draw_params, make_encoders, trained_vocabularies

ENCODERS = make_encoders()
TEXTS = [*TEXT, "A fox.", " ".join(["so on and on"] * 30)]


def make_trained(name="bert", **settings):
    model = EmbedderConfig(encoder=ENCODERS[name], **settings)
    run = Run(model=model, data=Data(objective=Contrastive(length=24)))
    return Trained(None, run, 1, draw_params(run), trained_vocabularies()[name])


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_text_has_the_vector_that_it_has_alone(name, capsys):
    trained = make_trained(name, pooling="last" if name == "xlnet" else "mean")
    embedder = TextEmbedder(trained, batch_size=2)
    vectors_ND = embedder(TEXTS)
    cut = {"roberta": "3 of 5 texts", "xlnet": ""}.get(name, "1 of 5 texts")
    assert cut in capsys.readouterr().err
    np.testing.assert_allclose(np.linalg.norm(vectors_ND, axis=1), 1, atol=1e-6)
    model = build(trained.run.model)
    for text, vector in zip(TEXTS, vectors_ND):
        encoding = embedder.tokenizer.encode(text)
        ids, types = (np.array([each], np.int32) for each in (encoding.ids, encoding.type_ids))
        alone = model.apply({"params": trained.params}, ids, ids >= 0, types, method="embed")
        np.testing.assert_allclose(normalize_rows(alone)[0], vector, atol=1e-5)


def test_a_width_is_the_first_components_of_length_1():
    whole = TextEmbedder(make_trained())(TEXTS)
    narrow = TextEmbedder(make_trained(), width=4)(TEXTS)
    np.testing.assert_allclose(narrow, normalize_rows(whole[:, :4]), atol=1e-6)
    raw = TextEmbedder(make_trained(normalize=False))(TEXTS)
    np.testing.assert_allclose(normalize_rows(raw), whole, atol=1e-6)
    with pytest.raises(ValueError, match="--width 17: .* has 1 to 16 components"):
        TextEmbedder(make_trained(), width=17)


def test_a_prompt_comes_before_each_text():
    prompted = TextEmbedder(make_trained(), prompt="No. ")(TEXTS[:2])
    plain = TextEmbedder(make_trained())([f"No. {text}" for text in TEXTS[:2]])
    np.testing.assert_array_equal(prompted, plain)


def test_an_empty_text_is_named():
    with pytest.raises(ValueError, match="^text 2 is empty"):
        TextEmbedder(make_trained())(["a", " "])


def test_a_vector_that_is_not_finite_is_named():
    trained = make_trained()
    for leaf in jax.tree.leaves(trained.params):
        leaf[...] = np.nan
    with pytest.raises(ValueError, match="^text 1: its vector is not finite"):
        TextEmbedder(trained)(TEXTS[:1])


def test_lengths_of_rows_are_few():
    lengths = [choose_length(length) for length in range(1, 513)]
    assert sorted(set(lengths)) == [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    finer = [choose_length(length, 4) for length in range(1, 513)]
    few = [16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512]
    assert sorted(set(finer)) == few
    for padded in (lengths, finer):
        assert all(length <= own for length, own in enumerate(padded, 1))


def test_the_nearest_are_those_of_all_products(monkeypatch):
    monkeypatch.setattr(nearest, "QUERIES", 4)
    monkeypatch.setattr(nearest, "DOCUMENTS", 7)
    rng = np.random.default_rng(0)
    query_QD, document_ND = rng.normal(size=(9, 5)), rng.normal(size=(30, 5))
    document_ND[20] = document_ND[3]  # of equal ones the first comes first
    query_QD, document_ND = query_QD.astype(np.float32), document_ND.astype(np.float32)
    scores, indices = nearest.find_nearest(query_QD, document_ND, 12)
    products = query_QD @ document_ND.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :12]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(products, expected, 1), atol=1e-6)
    assert nearest.find_nearest(query_QD, document_ND, 99)[0].shape == (9, 30)
    assert nearest.find_nearest(query_QD[:0], document_ND, 3)[0].shape == (0, 3)


def test_scores_of_a_ranking():
    ranking, grades = ["a", "b", "c", "d"], {"b": 2, "d": 1, "x": 1, "a": 0}
    gain = 2 / np.log2(3) + 1 / np.log2(5)
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert compute_ndcg(ranking, grades) == pytest.approx(gain / ideal)
    assert compute_ndcg(ranking, grades, 2) == pytest.approx(2 / np.log2(3) / (2 + 1 / np.log2(3)))
    assert compute_recall(ranking, grades) == pytest.approx(2 / 3)
    assert compute_recall(ranking, grades, 2) == pytest.approx(1 / 3)
    assert compute_reciprocal_rank(ranking, grades) == 0.5
    assert compute_reciprocal_rank(ranking, grades, 1) == 0
    found = score_rankings({"q": ranking, "r": ["x"]}, {"q": grades, "r": {"x": 0}, "s": {"a": 1}})
    assert found["mrr@10"] == 0.5  # r has no relevant document, and s was not searched
    with pytest.raises(ValueError, match="no query of the search has a relevant document"):
        score_rankings({"q": ranking}, {"q": {"a": 0}})


def test_ndcg_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics", reason="the extra `metrics`")
    rng = np.random.default_rng(0)
    for _ in range(20):
        grades, scores = rng.integers(0, 4, 30), rng.normal(size=30)
        ranking = [str(i) for i in np.argsort(-scores)]
        judged = {str(i): int(grade) for i, grade in enumerate(grades)}
        expected = metrics.ndcg_score([grades], [scores], k=10)
        assert compute_ndcg(ranking, judged) == pytest.approx(expected)


def test_negatives_are_near_but_not_right():
    queries, positives = ["q0", "q1", "q2", "q0"], ["p0", "p1", "p2", "p3"]
    angles = np.array([0.0, 0.1, 0.5, 0.2])
    query_QD = np.stack([np.cos(angles[[0, 1, 2, 0]]), np.sin(angles[[0, 1, 2, 0]])], axis=1)
    positive_QD = np.stack([np.cos(angles + 0.02), np.sin(angles + 0.02)], axis=1)
    mine = (queries, positives, query_QD.astype(np.float32), positive_QD.astype(np.float32))
    # p3 belongs to q0 as well, so it is none of its negatives.
    assert mine_negatives(*mine, count=2)[0] == ["p1", "p2"]
    assert mine_negatives(*mine, count=1)[2] == ["p3"]
    assert mine_negatives(*mine, count=1, skip=1)[0] == ["p2"]
    # Nearer than 0.9 times the positive's cosine is too near.
    assert mine_negatives(*mine, count=2, margin=0.9)[0] == ["p2"]


def test_negatives_are_found_behind_many_that_are_too_near(monkeypatch):
    monkeypatch.setattr(hard_negatives, "ROOM", 0)
    angles = np.linspace(0, 1.5, 40, dtype=np.float32)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    queries, positives = ([f"{kind}{i}" for i in range(40)] for kind in "qp")
    found = mine_negatives(queries, positives, vectors, vectors, count=2, margin=0.5)
    first = int(np.flatnonzero(np.cos(angles) <= 0.5)[0])
    assert found[0] == [f"p{first}", f"p{first + 1}"]


def test_a_text_of_several_queries_is_mined_once():
    vectors = np.eye(3, dtype=np.float32) + 0.1
    found = mine_negatives(["a", "b", "c"], ["x", "x", "y"], vectors, vectors, count=3, margin=9)
    assert found == [["y"], ["y"], ["x"]]


def test_predictions_are_vectors_and_cosines():
    from pretrain.inference.tasks.predict_vectors import VectorPredictor, make_reader

    trained = make_trained()
    read, predict = make_reader(trained), VectorPredictor(trained, 8)
    records = [
        {"text": TEXT[0]},
        {"text": TEXT[0], "text2": TEXT[1]},
        {"query": "A fox.", "positive": "No."},
    ]
    rows = [read(record, None) for record in records]
    assert [len(row) for row in rows] == [1, 2, 2]
    (vector, *scores) = predict(rows, [None] * 3)
    json.dumps(vector)
    expected = TextEmbedder(trained)([TEXT[0], TEXT[1], "A fox.", "No."])
    np.testing.assert_allclose(vector["vector"], expected[0], atol=1e-6)
    assert scores[0]["score"] == pytest.approx(float(expected[0] @ expected[1]), abs=1e-6)
    assert scores[1]["score"] == pytest.approx(float(expected[2] @ expected[3]), abs=1e-6)
    with pytest.raises(ValueError, match="f:3: expected text, text and text2, or query and"):
        read({"word": "a"}, "f:3")
