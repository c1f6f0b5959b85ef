"""ELMo in training: both states on lanes, and samples. Meshes and kills: test_meshes_and_kills.py."""

import dataclasses

import jax
import numpy as np
import pytest

from data.objectives import BidirectionalLm
from data.pipeline import Stream
from data.vocabulary.word_level import make_word_vocabulary
from models import build
from models.config.elmo import ElmoConfig
from pretrain.training.losses import find_loss
from tests.pretrain.conftest import make_texts
from tests.pretrain.training.recurrent_runs import make_run, run_steps
from tests.small_store import write_store

MODEL = ElmoConfig(
    vocab=20,
    width=8,
    cells=16,
    characters=9,
    character_width=4,
    character_filters=((1, 8), (3, 8)),
    highways=1,
    dropout=0.1,
)


def write_words(folder):
    """Write a store of words of which some are no targets."""
    texts = make_texts(300)
    vocabulary = make_word_vocabulary(texts)
    assert vocabulary.size > MODEL.vocab
    encoded = vocabulary.encode_batch(texts)
    documents = [encoded[i : i + 3] for i in range(0, 300, 3)]
    return write_store(folder, vocabulary, documents[:80], heldout=documents[80:])


def make_elmo_run(store):
    return make_run(MODEL, BidirectionalLm(length=6, characters=9), store.path)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_words(tmp_path_factory.mktemp("words") / "store")


@pytest.fixture(scope="module")
def run(store):
    return make_elmo_run(store)


@pytest.fixture(scope="module")
def stream(run, store):
    return Stream(store, run.data, seed=0)


def test_rows_on_a_lane_are_one_long_row(run, stream):
    """Both directions: four batches equal the rows that they join to."""
    model, loss = build(run.model), find_loss("bidirectional_lm")
    batches = [stream.build_batch(step) for step in range(4)]
    assert all(batch["is_continued"].all() for batch in batches[1:])
    shapes = jax.eval_shape(model.init, jax.random.key(0), batches[0]["token_ids"][:1])
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: random.standard_normal(leaf.shape, np.float32) * 0.3, shapes["params"]
    )
    apply_states = jax.jit(
        lambda batch, variables: loss.apply_states(model, params, batch, variables=variables)
    )
    variables, found = {}, []
    for batch in batches:
        states, variables = apply_states(batch, variables)
        found.append(states)
    forward = np.concatenate([batch["token_ids"] for batch in batches], axis=1)
    # The backward direction reads the first batch's row before the second's.
    backward = np.concatenate([batch["backward_ids"] for batch in batches[::-1]], axis=1)
    expected = jax.jit(lambda *ids: model.apply({"params": params}, *ids, method="compute_states"))(
        forward, backward
    )
    np.testing.assert_allclose(
        np.concatenate([states.forward_BLD for states in found], axis=1),
        expected.forward_BLD,
        atol=2e-6,
    )
    np.testing.assert_allclose(
        np.concatenate([states.backward_BLD for states in found[::-1]], axis=1),
        expected.backward_BLD,
        atol=2e-6,
    )


@pytest.mark.more
def test_samples_need_no_dropout(run, stream):
    """They are drawn from the same keys, which a step has without dropout, too."""
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, samples=7))
    state = run_steps(run, stream, count=1)
    assert np.isfinite(state.params["target_embedding"]["embedding"]).all()
