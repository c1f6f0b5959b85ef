"""The losses of embedders, against formulas in NumPy and against sentence-transformers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.objectives.contrastive import Contrastive
from data.objectives.similarity import Similarity
from data.objectives.teacher_vectors import TeacherVectors
from models.config.embedder import EmbedderConfig
from pretrain.config import Mesh, override_run, validate_run
from pretrain.mesh.sharding import make_batch_sharding, make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.losses import make_loss
from pretrain.training.losses.loss import ScoreTokens
from pretrain.training.program import make_program
from tests.pretrain.conftest import BERT, make_tiny_run

B, T, L, D = 6, 3, 5, 8
RUN = make_tiny_run(
    EmbedderConfig(encoder=BERT, learn_temperature=True, texts_at_once=24),
    Contrastive(length=32, texts=3),
)
TOKENS = ScoreTokens(lambda hidden: hidden)


def draw_batch(seed=0, texts=T):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(B, texts, D)).astype(np.float32)
    batch = {
        "token_ids": rng.integers(0, 1000, (B, texts, L)).astype(np.int32),
        "attention_mask": np.ones((B, texts, L), bool),
        "label_weights": np.ones(B, np.float32),
    }
    return vectors, batch


def compute(objective, vectors, batch, scale=20.0):
    loss = make_loss(objective)
    return loss.compute_sums((jnp.asarray(vectors), jnp.float32(scale)), TOKENS, batch)


def measure_cosines(a, b):
    unit = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b)]
    return unit[0].astype(np.float64) @ unit[1].T.astype(np.float64)


def cross_entropy(scores, labels):
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def expect_infonce(vectors, both=False, width=D):
    vectors = vectors[..., :width]
    queries, candidates = vectors[:, 0], np.concatenate([vectors[:, t] for t in range(1, T)])
    scores = 20 * measure_cosines(queries, candidates)
    own = np.arange(B)
    losses = cross_entropy(scores, own)
    return (losses + cross_entropy(scores[:, :B].T, own)) / 2 if both else losses


@pytest.mark.parametrize("directions", ["queries", "both"])
def test_a_query_finds_its_text_among_all_of_the_batch(directions):
    vectors, batch = draw_batch()
    objective = Contrastive(texts=T, directions=directions)
    found = compute(objective, vectors, batch)
    expected = expect_infonce(vectors, directions == "both")
    assert found["contrastive"] == pytest.approx(expected.sum(), rel=1e-5)
    scores = measure_cosines(vectors[:, 0], np.concatenate([vectors[:, 1], vectors[:, 2]]))
    is_right = scores.argmax(axis=1) == np.arange(B)
    assert float(found["contrastive_accuracy"]) == is_right.sum()


def test_widths_are_vectors_by_themselves():
    vectors, batch = draw_batch(1)
    found = compute(Contrastive(texts=T, widths=(D, 4, 2)), vectors, batch)
    expected = sum(expect_infonce(vectors, width=width).sum() for width in (D, 4, 2))
    assert found["contrastive"] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"widths=\(16,\): the vectors have 8 components"):
        compute(Contrastive(texts=T, widths=(16,)), vectors, batch)


def test_copies_of_its_texts_are_no_negatives():
    """Example 1 has the positive of 0, and the negative of 2 is the query of 2."""
    vectors, batch = draw_batch(2)
    ids = batch["token_ids"]
    ids[1, 1], ids[2, 2] = ids[0, 1], ids[2, 0]
    ids[3, 1, 3:], batch["attention_mask"][3, 1, 3:] = 0, False  # padding is no part of a text
    ids[4, 1], batch["attention_mask"][4, 1] = ids[3, 1], batch["attention_mask"][3, 1]
    ids[4, 1, 3:] = 9
    for copy, text in (((1, 1), (0, 1)), ((2, 2), (2, 0)), ((4, 1), (3, 1))):
        vectors[copy] = vectors[text]
    scores = 20 * measure_cosines(vectors[:, 0], np.concatenate([vectors[:, 1], vectors[:, 2]]))
    for query, candidate in ((0, 1), (1, 0), (2, B + 2), (3, 4), (4, 3)):
        scores[query, candidate] = -np.inf
    found = compute(Contrastive(texts=T), vectors, batch)
    assert found["contrastive"] == pytest.approx(
        cross_entropy(scores, np.arange(B)).sum(), rel=1e-5
    )


def test_rows_that_fill_a_batch_are_no_candidates():
    vectors, batch = draw_batch(3)
    batch["label_weights"][4:] = 0
    found = compute(Contrastive(texts=T), vectors, batch)
    scores = 20 * measure_cosines(vectors[:4, 0], np.concatenate([vectors[:4, 1], vectors[:4, 2]]))
    assert found["contrastive"] == pytest.approx(
        cross_entropy(scores, np.arange(4)).sum(), rel=1e-5
    )


def test_the_order_of_scores_is_compared_pair_by_pair():
    vectors, batch = draw_batch(4, texts=2)
    batch["labels"] = np.array([0, 3, 3, 1, 5, 2], np.float32)
    batch["label_weights"][5] = 0
    cosines = np.diag(measure_cosines(vectors[:, 0], vectors[:, 1]))
    labels, terms = batch["labels"], [0.0]
    terms += [cosines[i] - cosines[j] for i in range(5) for j in range(5) if labels[i] < labels[j]]
    found = compute(Similarity(), vectors, batch, scale=1.0)
    assert found["similarity"] / 5 == pytest.approx(np.log(np.exp(terms).sum()), rel=1e-5)


def test_a_cosine_follows_its_score():
    vectors, batch = draw_batch(5, texts=2)
    batch["labels"] = np.array([0, 3, 3, 1, 5, 2], np.float32)
    cosines = np.diag(measure_cosines(vectors[:, 0], vectors[:, 1]))
    found = compute(Similarity(target="cosine", highest=5), vectors, batch)
    expected = ((cosines - batch["labels"] / 5) ** 2).sum()
    assert found["similarity"] == pytest.approx(expected, rel=1e-5)
    rows = make_loss(Similarity()).row_predictions((vectors, 20.0), batch)
    np.testing.assert_allclose(rows[:, 0], cosines, atol=1e-6)


def test_no_gradient_is_lost_where_a_vector_is_zero():
    vectors, batch = draw_batch(6)
    vectors[0] = 0
    assert np.isfinite(compute(Contrastive(texts=T), vectors, batch)["contrastive"])


def test_labels_are_not_smoothed():
    vectors, batch = draw_batch()
    loss = make_loss(Contrastive(texts=T))
    tokens = ScoreTokens(lambda hidden: hidden, label_smoothing=0.1)
    with pytest.raises(ConfigError, match="label_smoothing=0.1: the texts of a batch"):
        loss.compute_sums((jnp.asarray(vectors), jnp.float32(1)), tokens, batch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["train.microbatches=2"], "train.microbatches=2: contrastive compares all texts"),
        (["model.texts_at_once=7"], "model.texts_at_once=7: data.batch_size=32 has 96 texts, 3 of"),
        (["data.objective=Similarity", "train.microbatches=2"], "similarity compares all texts"),
    ],
)
def test_what_would_part_a_batch_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        validate_run(override_run(RUN, changes))


def train_step(random_batch, *sizes):
    """(metrics, parameters) after a step of RUN on a mesh."""
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: math.prod(sizes)])
    program = make_program(RUN, mesh)
    batch = jax.device_put(random_batch(RUN), make_batch_sharding(mesh))
    with jax.set_mesh(mesh):
        state, metrics = program.train_step(program.init(), batch)
    return program, jax.device_get(metrics), jax.device_get(state.params)


def test_each_device_sees_the_texts_of_all(random_batch):
    """Loss and update of a mesh are those of one device, whose parts are the whole batch's."""
    _, expected, params = train_step(random_batch, 1, 1)
    program, metrics, sharded = train_step(random_batch, 4, 2)
    (line,) = program.exchange
    assert line.endswith("in each layer: the loss compares the rows of all devices")
    for name in ("contrastive", "contrastive_accuracy", "gradient_norm"):
        assert metrics[name] == pytest.approx(float(expected[name]), rel=1e-4)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(sharded), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


@pytest.mark.more
@pytest.mark.parametrize("directions", ["queries", "both"])
def test_losses_are_those_of_sentence_transformers(directions):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    losses = pytest.importorskip(
        "sentence_transformers.sentence_transformer.losses",
        reason="sentence-transformers is not installed",
    )
    vectors, batch = draw_batch(7)
    parts = [torch.tensor(vectors[:, t]) for t in range(T)]
    options = {}
    if directions == "both":
        options = {
            "directions": ("query_to_doc", "doc_to_query"),
            "partition_mode": "per_direction",
        }
    model = torch.nn.Linear(1, 1)  # which the loss of ready vectors does not call
    theirs = losses.MultipleNegativesRankingLoss(model, **options)
    expected = float(theirs.compute_loss_from_embeddings(parts, None))
    found = compute(Contrastive(texts=T, directions=directions), vectors, batch)
    assert found["contrastive"] / B == pytest.approx(expected, abs=1e-5)
    labels = torch.tensor([0.0, 3, 3, 1, 5, 2])
    expected = float(losses.CoSENTLoss(model).compute_loss_from_embeddings(parts[:2], labels))
    found = compute(Similarity(), vectors[:, :2], batch | {"labels": labels.numpy()})
    assert found["similarity"] / B == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("target", ["direction", "vector"])
def test_distance_from_a_teacher(target):
    vectors, batch = draw_batch(3, texts=1)
    teacher = np.random.default_rng(4).normal(size=(B, D)).astype(np.float32)
    weights = np.array([1, 1, 0, 1, 1, 0], np.float32)
    batch |= {"teacher_vectors": teacher, "label_weights": weights}
    found = compute(TeacherVectors(width=D, target=target), vectors, batch)
    expected = ((vectors[:, 0] - teacher) ** 2).mean(axis=1)
    cosines = np.diag(measure_cosines(vectors[:, 0], teacher))
    assert float(found["teacher_cosine"]) == pytest.approx(float(cosines @ weights), abs=1e-5)
    if target == "direction":
        expected = 2 * (1 - cosines) / D
    assert float(found["squared_error"]) == pytest.approx(float(expected @ weights), abs=1e-5)
    with pytest.raises(
        ValueError, match="the model's vectors have 8 components and the teacher's 3"
    ):
        compute(TeacherVectors(width=3), vectors, batch | {"teacher_vectors": teacher[:, :3]})


@pytest.mark.more
def test_distance_from_a_teacher_is_that_of_sentence_transformers():
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    losses = pytest.importorskip(
        "sentence_transformers.sentence_transformer.losses",
        reason="sentence-transformers is not installed",
    )
    vectors, batch = draw_batch(3, texts=1)
    teacher = np.random.default_rng(4).normal(size=(B, D)).astype(np.float32)
    theirs = losses.MSELoss(torch.nn.Linear(1, 1))
    expected = float(
        theirs.compute_loss_from_embeddings([torch.tensor(vectors[:, 0])], [torch.tensor(teacher)])
    )
    found = compute(
        TeacherVectors(width=D, target="vector"), vectors, batch | {"teacher_vectors": teacher}
    )
    assert float(found["squared_error"]) / B == pytest.approx(expected, abs=1e-5)
