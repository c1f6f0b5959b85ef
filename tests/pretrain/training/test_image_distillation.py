"""Distillation of images: the losses of the paper, a teacher that stays, runs on meshes and after a
kill, and the verbs.
"""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.config import Data
from data.images.image_store import ImageRequest, write_image_store
from data.objectives.image_distillation import ImageDistillation
from data.pipeline import Stream
from models import build
from models.config.bert import BertConfig
from models.config.deit import DeitConfig
from models.config.deit_student import DeitStudentConfig
from models.config.lenet import LenetConfig
from models.config.vit import VitConfig
from models.deit_student import StudentLogits
from pretrain.__main__ import main
from pretrain.cli.distil import draw_missing
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train, to_json
from pretrain.training.losses import make_loss
from pretrain.training.losses.loss import ScoreTokens
from pretrain.training.new_workdir import start_workdir
from pretrain.training.state import init_params
from pretrain.workdir.trained import open_trained
from tests.image_files import write_class_folders
from tests.models.image_peers import draw_params
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps

SIZES = dict(image_size=16, classes=3)
TEACHERS = {
    "lenet": LenetConfig(**SIZES, pixels=VitConfig().pixels),
    "vit": VitConfig(**SIZES, patch_size=8, width=16, depth=1, num_heads=2, mlp=16),
}
STUDENT = DeitStudentConfig(
    **SIZES,
    **dict(patch_size=4, width=16, depth=1, num_heads=2, mlp=32, path_dropout=0.0),
    teacher=TEACHERS["lenet"],
)
OBJECTIVE = ImageDistillation(size=16, min_area=0.5, mixup=0.8)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_class_folders(root / "images", count=20, size=16)
    return write_image_store(ImageRequest((str(root / "images"),), held_out=0.2), root / "store")


def make_run(store, model=STUDENT, objective=OBJECTIVE):
    return Run(
        model=model,
        data=Data(objective=objective, store=str(store.path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


def start_teacher(folder, store, model=TEACHERS["lenet"], encoding=None):
    """Write a workdir of a teacher with random parameters; return their tree."""
    _, params = draw_params(model)
    run = make_run(store)
    run = dataclasses.replace(run, model=model)
    start_workdir(folder, run, params, encoding or store.encoding)
    return params


def take_softmax(scores, temperature=1.0):
    exps = np.exp(scores / temperature)
    return exps / exps.sum(axis=1, keepdims=True)


# ---- the losses ----------------------------------------------------------------


@pytest.mark.held_by(2)
@pytest.mark.parametrize("targets", ["hard", "soft"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_losses_are_those_of_the_paper(targets, smoothing):
    """Touvron et al. 2021, equations 2 and 3, with the labels of mixtures and a row of padding."""
    rng, eye = np.random.default_rng(0), np.eye(5)
    scores = rng.normal(scale=2, size=(3, 7, 5)).astype(np.float32)
    one, two = rng.integers(0, 5, (2, 7))
    shares, weights = rng.random(7).astype(np.float32), np.array([1] * 6 + [0], np.float32)
    batch = {"labels": one, "mixed_labels": two, "label_shares": shares, "row_weights": weights}
    loss = make_loss(ImageDistillation(targets=targets, mixup=1.0))
    logits = StudentLogits(*map(jnp.asarray, scores))
    arrays = {key: jnp.asarray(value) for key, value in batch.items()}

    @jax.jit
    def score_images(logits, arrays):
        sums = loss.compute_sums(logits, ScoreTokens(None, 1.0, smoothing), arrays)
        return sums, loss.compute_loss(sums), loss.row_predictions(logits, arrays)

    sums, total, predicted = score_images(logits, arrays)

    by_class, by_distillation, by_teacher = scores.astype(np.float64)
    labels = shares[:, None] * eye[one] + (1 - shares)[:, None] * eye[two]
    labels = (1 - smoothing) * labels + smoothing / 5
    label_loss = -(weights[:, None] * labels * np.log(take_softmax(by_class))).sum()
    if targets == "hard":
        taught = -np.log(take_softmax(by_distillation))[range(7), by_teacher.argmax(axis=1)]
        expected = 0.5 * label_loss + 0.5 * (weights * taught).sum()
    else:
        p, q = take_softmax(by_teacher, 3), take_softmax(by_distillation, 3)
        taught = 9 * (p * np.log(p / q)).sum(axis=1)
        expected = 0.9 * label_loss + 0.1 * (weights * taught).sum()
    assert sums["image_classification"] == pytest.approx(label_loss, rel=1e-5)
    assert sums["distillation"] == pytest.approx((weights * taught).sum(), rel=1e-5)
    assert total == pytest.approx(expected, rel=1e-5)
    mean = (by_class + by_distillation) / 2
    for name, by in (("image_classification_accuracy", mean), ("teacher_accuracy", by_teacher)):
        assert sums[name] == ((by.argmax(axis=1) == one) * weights).sum()
    np.testing.assert_array_equal(predicted, np.stack([mean.argmax(axis=1), one, weights], axis=1))


def test_a_share_and_a_temperature_are_settings():
    logits = StudentLogits(*jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 5))))
    batch = {"labels": np.arange(4, dtype=np.int32), "row_weights": np.ones(4, np.float32)}
    found = {}
    for temperature in (3.0, 1.0):
        settings = dict(targets="soft", temperature=temperature, teacher_share=0.7)
        loss = make_loss(ImageDistillation(**settings))
        assert dict(loss.loss_weights) == {
            "image_classification": pytest.approx(0.3),
            "distillation": 0.7,
        }
        compute_sums = jax.jit(
            lambda *arrays, loss=loss: loss.compute_sums(arrays[0], ScoreTokens(None), arrays[1])
        )
        found[temperature] = float(compute_sums(logits, batch)["distillation"])
    p, q = (take_softmax(np.asarray(x, np.float64)) for x in (logits.by_teacher, logits[1]))
    assert found[1.0] == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5) != found[3.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher_share": 1.5}, "image_distillation: teacher_share=1.5; from 0 to 1"),
        ({"temperature": 0.0}, "image_distillation: temperature=0.0; above 0"),
        ({"crop_ratio": 0.0}, "image_distillation: crop_ratio=0.0; a share above 0"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ImageDistillation(**change).check_settings()


# ---- student and teacher -------------------------------------------------------


def apply_model(model, params, pixels, **how):
    """Return the outputs of a model, as one program."""
    return jax.jit(lambda params, pixels: model.apply({"params": params}, pixels, **how))(
        params, pixels
    )


@pytest.mark.parametrize("teacher", TEACHERS.values(), ids=TEACHERS)
def test_the_logits_are_those_of_both_models_alone(store, teacher):
    student = dataclasses.replace(STUDENT, teacher=teacher)
    model, params = draw_params(student)
    pixels = Stream(store, make_run(store).data, seed=0).build_batch(0)["pixels"]
    logits = apply_model(model, params, pixels, method="compute_states")
    alone = apply_model(build(teacher), params["teacher"], pixels)
    np.testing.assert_allclose(logits.by_teacher, alone, rtol=1e-6)
    settings = {f.name: getattr(STUDENT, f.name) for f in dataclasses.fields(DeitConfig)}
    own = {name: leaf for name, leaf in params.items() if name != "teacher"}
    both = apply_model(build(DeitConfig(**settings)), own, pixels, method="compute_both")
    for found, expected in zip(logits, both, strict=False):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    # A prediction does not need the teacher.
    lowered = jax.jit(lambda pixels: model.apply({"params": params}, pixels)).lower(pixels)
    assert "1.7159" not in lowered.compile().as_text()


def test_a_student_begins_as_it_would_without_a_teacher(store):
    run = make_run(store)
    drawn = draw_missing(run, {"teacher": None})
    settings = {f.name: getattr(STUDENT, f.name) for f in dataclasses.fields(DeitConfig)}
    alone = jax.jit(
        lambda: init_params(build(DeitConfig(**settings)), run.data.objective, run.train.seed)
    )()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), drawn, alone)


@pytest.mark.more
def test_a_teacher_stays_and_a_student_is_the_same_on_a_mesh(store):
    run = make_run(store)
    stream = Stream(store, run.data, seed=0)
    first, expected = (run_steps(run, stream, count=count).params for count in (0, 3))
    found = run_steps(run, stream, mesh={"data": 2, "fsdp": 2, "model": 2}).params
    for one, two in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-6)
    jax.tree.map(np.testing.assert_array_equal, expected["teacher"], first["teacher"])
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max() > 1e-3, expected, first)
    assert all(any(jax.tree.leaves(moved[name])) == (name != "teacher") for name in moved)


@pytest.mark.more
@pytest.mark.usefixtures("whole")  # test_meshes_and_kills.py kills others like it
def test_a_run_that_is_killed_ends_with_the_same_bits(store, tmp_path):
    run, params = make_run(store), start_teacher(tmp_path / "teacher", store)
    (tmp_path / "student.json").write_text(to_json(run))
    words = ["distil", str(tmp_path / "student.json"), "--teacher", str(tmp_path / "teacher")]
    assert main([*words, "--workdir", str(tmp_path / "whole")]) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    check_killed_run(run, tmp_path)
    trained = open_trained(tmp_path / "killed").params["teacher"]
    jax.tree.map(np.testing.assert_array_equal, trained, params)


# ---- the verbs -----------------------------------------------------------------


@pytest.mark.more
def test_the_verbs_from_a_teacher_to_a_folder_of_transformers(store, tmp_path, capsys):
    params = start_teacher(tmp_path / "vit", store, TEACHERS["vit"])
    run = dataclasses.replace(make_run(store), train=Train(steps=4, compute_dtype="float32"))
    (tmp_path / "student.json").write_text(to_json(run))
    work = ["--workdir", str(tmp_path / "w")]
    path = str(tmp_path / "student.json")
    assert main(["train", path, *work]) == 2
    assert "has no teacher: `distil CONFIG --teacher WORKDIR" in capsys.readouterr().err
    assert main(["distil", path, "--teacher", str(tmp_path / "vit"), *work]) == 0
    printed = capsys.readouterr().out
    assert "a DeitStudentConfig of 1 layers, and its teacher, the VitConfig of" in printed
    command = printed.splitlines()[-1].split()
    assert command[:3] == ["python", "-m", "pretrain"] and main(command[3:]) == 0
    trained = open_trained(tmp_path / "w")
    assert trained.run.model.teacher == TEACHERS["vit"] and trained.step == 4
    jax.tree.map(np.testing.assert_array_equal, trained.params["teacher"], params)
    capsys.readouterr()
    assert main(["evaluate", *work, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    mean = (scores["image_classification"] + scores["distillation"]) / 2
    assert scores["loss"] == pytest.approx(mean) and 0 <= scores["teacher_accuracy"] <= 1
    check_export(store, trained, tmp_path, capsys)


def check_export(store, trained, tmp_path, capsys):
    """Check that an export has the student's logits, and an import its predictions."""
    images = str(store.path.parent / "images" / "disk")
    predict = ["predict", "--input", images, "--json", "--top", "3", "--workdir"]
    found = []
    assert main(["export", "--workdir", str(tmp_path / "w"), "--output", str(tmp_path / "hf")]) == 0
    assert main(["import", str(tmp_path / "hf"), "--workdir", str(tmp_path / "again")]) == 0
    assert type(open_trained(tmp_path / "again").run.model) is DeitConfig
    for name in ("w", "again"):
        capsys.readouterr()
        assert main([*predict, str(tmp_path / name)]) == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for one, two in zip(*found, strict=True):
        assert one["probabilities"] == pytest.approx(two["probabilities"], abs=1e-6)
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    import torch
    import transformers

    from tests.models.image_peers import normalize

    kind = transformers.DeiTForImageClassificationWithTeacher
    theirs = kind.from_pretrained(tmp_path / "hf").eval()
    pixels = Stream(store, trained.run.data, seed=0).build_batch(0)["pixels"]
    with torch.no_grad():
        logits = theirs(torch.tensor(normalize(STUDENT, pixels))).logits.numpy()
    ours = apply_model(build(trained.run.model), trained.params, pixels)
    np.testing.assert_allclose(ours, logits, atol=1e-5)


def test_a_lenet_has_a_folder_of_jax_alone(store, tmp_path, capsys):
    start_teacher(tmp_path / "w", store)
    words = ["export", "--workdir", str(tmp_path / "w"), "--output", str(tmp_path / "out")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "transformers has no LeNet-5 image classifier" in error and "--format jax" in error
    assert main([*words, "--format", "jax"]) == 0
    processor = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    assert "image_processor_type" not in processor and processor["crop_size"]["height"] == 16


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (LenetConfig(image_size=20, classes=3, pixels=VitConfig().pixels), "image_size=20"),
        (LenetConfig(image_size=16, classes=4, pixels=VitConfig().pixels), "teacher classes=4"),
        (
            dataclasses.replace(TEACHERS["vit"], pooling="patches"),
            "predicts masked patches and no classes",
        ),
        (LenetConfig(image_size=16, classes=3), "channels=3 and its teacher channels=1"),
        (BertConfig(vocab=64, width=8, depth=1, num_heads=2, mlp=8), "not a BertConfig"),
        (STUDENT, "must be a VitConfig or a DeitConfig or a LenetConfig, not a DeitStudentConfig"),
    ],
)
def test_wrong_teachers_are_one_clear_error(store, tmp_path, capsys, monkeypatch, teacher, message):
    import types

    from pretrain.workdir import trained

    found = types.SimpleNamespace(
        run=types.SimpleNamespace(model=teacher), step=0, params={}, read_origin=lambda: None
    )
    monkeypatch.setattr(trained, "open_trained", lambda *args, **options: found)
    monkeypatch.setattr("pretrain.inference.random_head.check_head", lambda *args, **options: None)
    (tmp_path / "student.json").write_text(to_json(make_run(store)))
    words = ["distil", str(tmp_path / "student.json"), "--teacher", "x"]
    assert main([*words, "--workdir", str(tmp_path / "w")]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not (tmp_path / "w").exists()


def test_a_teacher_of_other_classes_is_refused(store, tmp_path, capsys):
    """The workdir has the names of the teacher's classes, which a store must have too."""
    other = dataclasses.replace(store.encoding, classes=("a", "b", "c"))
    start_teacher(tmp_path / "teacher", store, encoding=other)
    (tmp_path / "student.json").write_text(to_json(make_run(store)))
    words = ["distil", str(tmp_path / "student.json"), "--teacher", str(tmp_path / "teacher")]
    assert main([*words, "--workdir", str(tmp_path / "w")]) == 0
    saved = str(tmp_path / "w" / "config.json")
    capsys.readouterr()
    assert main(["train", saved, "--workdir", str(tmp_path / "w")]) == 2
    assert "Traceback" not in capsys.readouterr().err
