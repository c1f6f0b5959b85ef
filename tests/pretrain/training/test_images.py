"""Runs of ViT: the loss of mixtures, skipped sublayers on meshes, and models that do not fit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.images.image_store import ImageRequest, write_image_store
from data.objectives.image_classification import ImageClassification
from data.pipeline import Stream
from models.config.base import Pixels
from models.config.deit import DeitConfig
from models.config.vit import VitConfig
from pretrain.config import validate_run
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.model_fit import check_fit
from pretrain.training.losses import find_loss
from pretrain.training.losses.loss import ScoreTokens
from tests.image_files import write_class_folders
from tests.pretrain.training.recurrent_runs import make_run, run_steps

SIZES = dict(image_size=16, patch_size=4, width=16, depth=2, num_heads=2, mlp=32, classes=3)
OBJECTIVE = ImageClassification(size=16, num_ops=1, erase_rate=0.2, mixup=0.8, cutmix=1.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_class_folders(root / "images", count=40)
    return write_image_store(ImageRequest((str(root / "images"),), held_out=0.2), root / "store")


VIT = VitConfig(**SIZES)


def make_image_run(store, model=VIT, objective=OBJECTIVE):
    return make_run(model, objective, store.path)


def compute_sums(scores, batch, smoothing=0.0):
    loss = find_loss("image_classification")
    compute = jax.jit(
        lambda scores, batch: loss.compute_sums(scores, ScoreTokens(None, 1.0, smoothing), batch)
    )
    return compute(scores, {key: jnp.asarray(value) for key, value in batch.items()})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_mixture_is_that_of_its_soft_labels(smoothing):
    """-sum_c q_c log p_c, where q has the shares of both classes and the smoothing."""
    rng = np.random.default_rng(0)
    scores, (one, two) = rng.normal(size=(7, 5)).astype(np.float32), rng.integers(0, 5, (2, 7))
    shares, weights = rng.random(7).astype(np.float32), np.array([1] * 6 + [0], np.float32)
    batch = {"labels": one, "mixed_labels": two, "label_shares": shares, "row_weights": weights}
    eye = np.eye(5)
    soft = shares[:, None] * eye[one] + (1 - shares)[:, None] * eye[two]
    soft = (1 - smoothing) * soft + smoothing / 5
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    expected = -(weights[:, None] * soft * log_p).sum()
    sums = compute_sums(scores, batch, smoothing)
    assert sums["image_classification"] == pytest.approx(expected, rel=1e-5)
    correct = ((scores.argmax(axis=1) == one) * weights).sum()
    assert sums["image_classification_accuracy"] == correct
    plain = {key: batch[key] for key in ("labels", "row_weights")}
    expected = -(weights[:, None] * ((1 - smoothing) * eye[one] + smoothing / 5) * log_p).sum()
    found = compute_sums(scores, plain, smoothing)["image_classification"]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.more
def test_the_same_rows_skip_sublayers_on_a_mesh(store):
    def train(path_dropout, mesh=None):
        run = make_image_run(store, DeitConfig(**SIZES, path_dropout=path_dropout))
        return run_steps(run, Stream(store, run.data, seed=0), mesh).params

    alone, found, without = train(0.4), train(0.4, {"fsdp": 2, "data": 4}), train(0.0)
    difference = 0.0
    for one, two, three in zip(*map(jax.tree.leaves, (alone, found, without)), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-6)
        difference = max(difference, np.abs(one - three).max())
    assert difference > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": 2}, "has 3 classes, and the head scores 2; set model.classes=3"),
        ({"image_size": 20}, "model.image_size=20, but data.objective.size=16"),
        ({"pixels": Pixels(mean=(0.5,), std=(0.5,))}, "1 channels, but data.objective.channels=3"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(store, change, message):
    run = make_image_run(store)
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, **change))
    with pytest.raises(ConfigError, match=message):
        check_fit(run, store) if "classes" in change else validate_run(run)
