"""ELMo in training: both states on meshes, with micro-batches and samples, after a kill."""

import dataclasses

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import BidirectionalLm
from data.pipeline import Stream
from data.store.small_store import write_store
from data.vocabulary.word_level import make_word_vocabulary
from models import build
from models.config.elmo import ElmoConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.training.losses import find_loss
from tests.pretrain.conftest import make_texts
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps

LENGTH, ROWS, STEPS = 6, 8, 12
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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store of words of which some are no targets."""
    texts = make_texts(300)
    vocabulary = make_word_vocabulary(texts)
    assert vocabulary.size > MODEL.vocab
    encoded = vocabulary.encode_batch(texts)
    documents = [encoded[i : i + 3] for i in range(0, 300, 3)]
    folder = tmp_path_factory.mktemp("words") / "store"
    return write_store(folder, vocabulary, documents[:80], heldout=documents[80:])


@pytest.fixture(scope="module")
def run(store):
    return Run(
        model=MODEL,
        data=Data(
            objective=BidirectionalLm(length=LENGTH, characters=9),
            store=str(store.path),
            batch_size=ROWS,
        ),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=STEPS, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


@pytest.fixture(scope="module")
def stream(run, store):
    return Stream(store, run.data, seed=0)


@pytest.fixture(scope="module")
def alone(run, stream):
    state = run_steps(run, stream)
    layers = state.variables["carry"]["bilm"]
    assert {*layers} == {f"{name}_layer_{i}" for name in ("forward", "backward") for i in range(2)}
    assert all(layer["cells"].shape == (ROWS, 16) for layer in layers.values())
    assert min(np.abs(layer["output"]).max() for layer in layers.values()) > 1e-4
    return state


@pytest.mark.more
@pytest.mark.parametrize(
    ("mesh", "microbatches"),
    [({"data": 8}, 1), ({"data": 2, "fsdp": 2, "model": 2}, 1), (None, 4)],
    ids=str,
)
def test_meshes_and_micro_batches_keep_the_same(run, stream, alone, mesh, microbatches):
    found = run_steps(run, stream, mesh, microbatches)
    leaves = jax.tree.leaves((alone.params, alone.variables))
    for a, b in zip(leaves, jax.tree.leaves((found.params, found.variables)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)


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
def test_a_run_with_samples_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, samples=7))
    check_killed_run(run, tmp_path)


def test_samples_need_no_dropout(run, stream):
    """They are drawn from the same keys, which a step has without dropout, too."""
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, samples=7))
    state = run_steps(run, stream, count=1)
    assert np.isfinite(state.params["target_embedding"]["embedding"]).all()
