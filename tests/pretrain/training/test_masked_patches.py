"""Runs of masked patches: loss, corruption, and runs from another."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.images.image_store import ImageRequest, write_image_store
from data.objectives.image_classification import ImageClassification
from data.objectives.masked_patches import LEVELS, MaskedPatches
from models import build, vit
from models.config.deit import DeitConfig
from models.config.vit import VitConfig
from models.vit import corrupt_patches
from pretrain.__main__ import main
from pretrain.config import to_json, validate_run
from pretrain.settings.overrides import ConfigError
from pretrain.training.losses import find_loss
from pretrain.training.losses.loss import ScoreTokens
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.image_files import write_class_folders
from tests.pretrain.training.recurrent_runs import make_run

SIZES = dict(image_size=16, patch_size=4, width=16, depth=2, num_heads=2, mlp=32, classes=3)
VIT = VitConfig(**SIZES, pooling="patches")
OBJECTIVE = MaskedPatches(size=16, patch_size=4)


def test_the_head_scores_as_many_colors_as_there_are():
    """Neither of `data` and `models` imports the other, so each has the number."""
    assert LEVELS == vit.LEVELS


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_class_folders(root / "images", count=40)
    return write_image_store(ImageRequest((str(root / "images"),), held_out=0.2), root / "store")


def make_patch_run(store, model=VIT, objective=OBJECTIVE, steps=12):
    return make_run(model, objective, store.path, steps=steps)


def test_the_loss_is_the_cross_entropy_of_corrupted_patches():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 4, 8)).astype(np.float32)
    labels, weights = rng.integers(0, 8, (3, 4)), rng.integers(0, 2, (3, 4)).astype(np.float32)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    chosen = [(b, n) for b, n in np.ndindex(3, 4) if weights[b, n]]
    batch = {"labels": jnp.asarray(labels), "label_weights": jnp.asarray(weights)}
    sums = find_loss("masked_patches").compute_sums(jnp.asarray(logits), ScoreTokens(None), batch)
    expected = -sum(log_p[b, n, labels[b, n]] for b, n in chosen)
    assert sums["masked_patches"] == pytest.approx(expected, rel=1e-5)
    correct = sum(logits[b, n].argmax() == labels[b, n] for b, n in chosen)
    assert float(sums["masked_patches_accuracy"]) == correct


def test_a_patch_has_the_embedding_of_its_source():
    x, mask = np.random.default_rng(0).normal(size=(2, 3, 4)), np.full(4, 9.0)
    found = corrupt_patches(jnp.asarray(x), jnp.asarray([[-1, 0, 2], [0, 1, -1]]), mask)
    expected = [[mask, x[0, 0], x[0, 2]], [x[1, 0], x[1, 1], mask]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_masked_patch_is_not_seen():
    """Its pixels change no logit; sources that are the patches themselves change nothing."""
    model, rng = build(VIT), np.random.default_rng(0)
    pixels = rng.integers(0, 256, (1, 16, 16, 3), np.uint8)
    other = pixels.copy()
    other[0, 4:8, 8:12] = 255 - other[0, 4:8, 8:12]  # patch 6
    sources = np.arange(16)[None]
    variables = model.init(jax.random.key(0), pixels, patch_sources=sources)
    apply = jax.jit(model.apply)
    plain = apply(variables, pixels)
    assert plain.shape == (1, 16, 8**3) and plain.dtype == jnp.float32
    np.testing.assert_allclose(apply(variables, pixels, patch_sources=sources), plain, atol=1e-6)
    assert np.abs(apply(variables, other) - plain).max() > 1e-3
    sources = np.where(sources == 6, -1, sources)
    one, two = (apply(variables, image, patch_sources=sources) for image in (pixels, other))
    np.testing.assert_array_equal(one, two)


LABELS = ImageClassification(size=16)


@pytest.mark.parametrize(
    ("model", "objective", "message"),
    [
        (VIT, LABELS, "the head predicts masked patches, which ImageClassification has not"),
        (VitConfig(**SIZES), OBJECTIVE, "trains a head of masked patches; set model.pooling=pa"),
        (VIT, MaskedPatches(size=16, patch_size=8), "model.patch_size=4, but data.objective.patch"),
        (DeitConfig(**SIZES), OBJECTIVE, "a DeitConfig is trained by ImageClassification"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(store, model, objective, message):
    with pytest.raises(ConfigError, match=message):
        validate_run(make_patch_run(store, model, objective))


def say(capsys, *words):
    """Return (status, what is printed) of a command."""
    status = main([*map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.mark.more
def test_a_classifier_begins_with_the_parameters_of_masked_patches(store, tmp_path, capsys):
    masked, labels = tmp_path / "masked", tmp_path / "labels"
    paths = {"masked": make_patch_run(store, steps=4)}
    sizes = {**SIZES, "scan": False}
    paths["labels"] = make_patch_run(store, VitConfig(**sizes), LABELS, steps=4)
    paths["mean"] = make_patch_run(store, VitConfig(**SIZES, pooling="mean"), LABELS)
    paths["wide"] = make_patch_run(store, VitConfig(**{**SIZES, "mlp": 64}), LABELS)
    paths["few"] = make_patch_run(store, VitConfig(**{**SIZES, "classes": 2}), LABELS)
    for name, run in paths.items():
        (tmp_path / f"{name}.json").write_text(to_json(run))

    def train(name, workdir, *more):
        return say(capsys, "train", tmp_path / f"{name}.json", "--workdir", workdir, *more)

    assert train("masked", masked)[0] == 0
    status, printed = train("labels", labels, "--from", masked, "train.stop_at_step=0")
    assert status == 0, printed
    assert f"parameters come from {masked} at step 4; initialized at random: classi" in printed
    before, after = open_trained(masked).params, open_trained(labels, 0).params
    assert after["classifier"]["out"]["kernel"].shape == (16, 3)
    assert "mask_token" not in after["embeddings"]
    np.testing.assert_array_equal(
        after["encoder"]["layer_1"]["mlp"]["up"]["kernel"],
        before["encoder"]["layers"]["mlp"]["up"]["kernel"][1],
    )
    position = "position_embedding"
    for one, two in zip(
        jax.tree.leaves(after["embeddings"][position]),
        jax.tree.leaves(before["embeddings"][position]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)
    origin = json.loads((labels / "origin.json").read_text())
    assert origin["pretrained_step"] == 4 and len(origin["fresh"]) == 2
    # The same command resumes the run.
    status, printed = train("labels", labels, "--from", masked)
    assert status == 0 and "parameters come from" not in printed
    assert open_trained(labels).step == 4
    for name, message in {
        "mean": "position_embedding/embedding is [17, 16] in",
        "wide": "mlp/down/kernel is [2, 32, 16] in",
        "few": "the head scores 2; set model.classes=3",
    }.items():
        status, printed = train(name, tmp_path / "new", "--from", masked)
        assert status == 2 and message in printed and not (tmp_path / "new").exists()
    status, printed = say(
        capsys, *("train", "bert_tiny", "--workdir", tmp_path / "new", "--from", masked)
    )
    assert status == 2 and "models of patches begin with each other's parameters" in printed
    status, printed = say(capsys, "predict", "--workdir", masked, "a.png")
    assert status == 2 and "a model of masked patches predicts no classes" in printed


def test_attention_of_masked_patches_is_that_of_all_patches(store, tmp_path):
    from PIL import Image

    from data.images.encoding import ImageEncoding
    from pretrain.config import Mesh
    from pretrain.inference.images.patch_attention import compute_image_maps
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.state import init_params
    from pretrain.workdir.trained import Trained

    run = make_patch_run(store, dataclasses.replace(VIT, depth=1))
    params = init_params(build(run.model), run.data.objective, 0)
    Image.new("RGB", (16, 16), "red").save(tmp_path / "red.png")
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        trained = Trained(Workdir.open(tmp_path), run, 0, params, ImageEncoding(("a",)))
        (found,) = compute_image_maps(trained, mesh, [str(tmp_path / "red.png")])
    assert found.title == "red.png" and found.weights_NHGG.shape == (1, 2, 4, 4)
