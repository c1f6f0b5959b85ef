"""`distil` initialises a student from its teacher's layers, and training never changes the teacher."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.objectives import Distillation, MaskedLm
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.config.distilbert import DistilBertConfig
from models.config.t5 import T5Config
from pretrain.__main__ import main
from pretrain.api.importing import make_starting_run
from pretrain.cli.distil import check_teacher, find_recipe
from pretrain.config import SECTION_CLASSES, load, to_json
from pretrain.families.distilbert import init_student
from pretrain.mesh.sharding import make_mesh
from pretrain.training.new_workdir import start_workdir
from pretrain.training.program import make_program
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import draw_params, start_untrained

BERT = BertConfig(
    vocab=128, length=32, width=32, depth=4, num_heads=8, mlp=64, dropout=0.0, attention_dropout=0.0
)
STUDENT = DistilBertConfig(
    vocab=128, length=32, width=32, depth=2, teacher_depth=4, num_heads=8, mlp=64, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
TEXT = [
    "The fox and the dog. A word and another word, and so on.",
    "Gaps are left out of a text, and the reader fills them.",
] * 20


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_a_student_of_all_layers_computes_what_its_teacher_does(scan):
    teacher = dataclasses.replace(BERT, scan=not scan)
    params = draw_params(teacher, scale=1.0)
    whole = dataclasses.replace(STUDENT, depth=4, scan=scan)
    ids = jnp.asarray(np.random.default_rng(1).integers(0, 128, (2, 7)), jnp.int32)
    words, _ = jax.jit(build(teacher).apply)({"params": params}, ids, ids > 3)
    own, lesson = jax.jit(build(whole).apply)(
        {"params": init_student(whole, teacher, params)}, ids, ids > 3
    )
    np.testing.assert_allclose(own, words, atol=5e-4)
    np.testing.assert_allclose(lesson.divergence_BP, 0, atol=1e-4)


def test_every_second_layer_is_taken():
    params = draw_params(BERT, scale=1.0)
    kernel = params["bert"]["encoder"]["layers"]["mlp"]["up"]["kernel"]
    np.testing.assert_array_equal(
        init_student(STUDENT, BERT, params)["student"]["encoder"]["layers"]["mlp"]["up"]["kernel"],
        kernel[[0, 2]],
    )
    three = init_student(dataclasses.replace(STUDENT, depth=3), BERT, params)
    np.testing.assert_array_equal(
        three["student"]["encoder"]["layers"]["mlp"]["up"]["kernel"], kernel[[0, 1, 2]]
    )


def test_the_teacher_stays_and_the_lesson_is_learned(runs, random_batch):
    run = runs["distilbert"]
    mesh = make_mesh(run.mesh, jax.devices()[:1])
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state = program.init()
        params = init_student(run.model, BERT, draw_params(BERT, scale=1.0))
        state = state.replace(params=jax.device_put(params, program.state_shardings.params))
        before = params["teacher"]
        frozen = {
            jax.tree_util.keystr(keys)
            for keys, _ in jax.tree_util.tree_leaves_with_path(state.optimizer)
        }
        assert (
            frozen
            and not any("teacher" in path for path in frozen)
            and any("student" in path for path in frozen)
        )
        batch, lessons = random_batch(run), []
        for _ in range(30):
            state, metrics = program.train_step(
                state, jax.device_put(batch, program.batch["token_ids"].sharding)
            )
            lessons.append(float(metrics["distillation"]))
    after = jax.device_get(state.params["teacher"])
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )
    assert lessons[-1] < 0.5 * lessons[0]


def test_the_verb_makes_a_workdir_that_train_continues(tmp_path, capsys):
    vocabulary = train_vocabulary(TEXT, 60, algorithm="bpe")
    start_workdir(
        tmp_path / "bert", make_starting_run(BERT), draw_params(BERT, scale=1.0), vocabulary
    )
    run = dataclasses.replace(
        make_starting_run(STUDENT),
        data=dataclasses.replace(
            make_starting_run(STUDENT).data,
            objective=Distillation(length=16, max_predictions=4, rows="documents"),
        ),
    )
    (tmp_path / "student.json").write_text(to_json(run))
    words = split_words(
        f"distil {tmp_path / 'student.json'} --teacher {tmp_path / 'bert'}",
        f"--workdir {tmp_path / 'w'}",
    )
    assert main(words) == 0
    assert "a DistilBertConfig of 2 layers, and its teacher" in capsys.readouterr().out
    assert Workdir.open(tmp_path / "w").run == run
    trained = open_trained(tmp_path / "w")
    assert (
        set(trained.params) == {"student", "teacher"}
        and trained.step == 0
        and trained.read_origin()["folder"] == "bert"
    )
    assert main(["predict", "--workdir", str(tmp_path / "w"), "the [MASK] and"]) == 0
    assert main(words) == 2 and "not empty" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "x"), "model.width=16"]) == 2
    assert "set model.width=32" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_vocabulary_of_a_student_is_its_teachers_unless_it_is_given(tmp_path, capsys):
    teacher = load("bert_tiny", ["model.vocab=128"]).model
    vocabulary = train_vocabulary(TEXT, 60, algorithm="bpe")
    start_untrained(tmp_path / "bert", teacher, vocabulary, draw_params(teacher, scale=1.0))
    words = ["distil", "distilbert_tiny", "--teacher", str(tmp_path / "bert"), "--workdir"]
    assert main([*words, str(tmp_path / "w")]) == 0
    assert Workdir.open(tmp_path / "w").run.model.vocab == 128
    assert "model.vocab=128 follows" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "x"), "model.vocab=4096"]) == 2
    assert "set model.vocab=128" in capsys.readouterr().err and not (tmp_path / "x").exists()


def fit_student(student, teacher):
    recipe = find_recipe(student)
    check_teacher(recipe, teacher)
    return recipe.fit_student(student, teacher)


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("student", "teacher", "message"),
    [
        (BERT, BERT, "the student must be a .*or a DistilBertConfig, not a BertConfig"),
        (dataclasses.replace(STUDENT, teacher_depth=None), BERT, "set model.teacher_depth=4"),
        (STUDENT, T5Config(), "the teacher must be a BertConfig, not a T5Config"),
        (dataclasses.replace(STUDENT, vocab=64, teacher_depth=3), BERT,
         "its teacher's; set model.vocab=128 model.teacher_depth=4"),
        (dataclasses.replace(STUDENT, depth=5), BERT,
         "model.depth=5: the student has more layers than its teacher, which has 4"),
    ],
)  # fmt: skip
def test_incompatible_students_are_refused_by_name(student, teacher, message):
    assert fit_student(STUDENT, BERT) == STUDENT
    with pytest.raises(ValueError, match=message):
        fit_student(student, teacher)


def test_a_student_may_go_on_without_its_teacher():
    assert "DistilBertConfig" in SECTION_CLASSES
    alone = make_starting_run(dataclasses.replace(STUDENT, teacher_depth=None))
    assert isinstance(alone.data.objective, MaskedLm)
