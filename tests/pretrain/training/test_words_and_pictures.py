"""Runs on captions and pictures: equal parameters on meshes, and a run that is killed."""

import jax
import numpy as np
import pytest

from data.config import Data
from data.images.captioned_store import CaptionRequest, write_captioned_store
from data.images.codebook import Grid
from data.objectives.words_and_pictures import WordsAndPictures
from data.pipeline import Stream
from models.config.bert import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from tests.captioned_images import TINY_MODEL, write_captioned_images
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("captioned")
    write_captioned_images(root / "pairs")
    request = CaptionRequest(str(root / "pairs"), Grid(16, 4, 1), clusters=24, held_out=0.2)
    return write_captioned_store(request, root / "store")


def make_run(store):
    objective = WordsAndPictures(length=32, max_predictions=16)
    return Run(
        model=BertConfig(vocab=64, length=32, **TINY_MODEL),
        data=Data(objective=objective, store=str(store.path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=2),
        checkpoint=Checkpoint(every=4, keep=10),
    )


@pytest.mark.more
def test_parameters_are_the_same_on_a_mesh_and_in_microbatches(store):
    run = make_run(store)
    stream = Stream(store, run.data, seed=0)
    expected = run_steps(run, stream).params
    for options in ({"mesh": {"data": 8}}, {"microbatches": 2}):
        found = run_steps(run, stream, **options).params
        for one, two in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(one, two, atol=2e-6)


@pytest.mark.more
def test_a_run_that_is_killed_ends_with_the_same_bits(store, tmp_path):
    check_killed_run(make_run(store), tmp_path)
