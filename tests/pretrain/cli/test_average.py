"""A translation model from start to end: pairs are prepared, it is trained, its last checkpoints
are averaged, and the mean translates.
"""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.__main__ import main
from pretrain.cli.average import average_checkpoints
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train, to_json
from pretrain.mesh.sharding import make_mesh
from pretrain.training import program
from pretrain.workdir import trained as trained_module
from pretrain.workdir.checkpoints import DamagedCheckpoint
from pretrain.workdir.read_params import restore_params
from tests.command import split_words

MODEL = TransformerConfig(vocab=64, width=16, depth=1, decoder_depth=1, num_heads=2, mlp=24)
NUMBERS = "one two three four five six seven eight nine ten".split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a workdir with the checkpoints of steps 2, 4, 6 and 8."""
    folder = tmp_path_factory.mktemp("run")
    with open(folder / "pairs.tsv", "w") as file:
        for i in range(200):
            words = [NUMBERS[(i * i + 3 * i * j + j) % 10] for j in range(1 + i % 4)]
            file.write(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")
    words = split_words(
        "--document pair --layout transformer --algorithm bpe --vocab-size 40 --held-out 0.1"
    )
    assert (
        main(["prepare", str(folder / "pairs.tsv"), "--output", str(folder / "store"), *words]) == 0
    )
    run = Run(
        model=MODEL,
        data=Data(
            store=str(folder / "store"),
            objective=Seq2Seq(length=24, target_length=24),
            batch_size=8,
        ),
        optimizer=AdamW(
            learning_rate=0.01, warmup_steps=4, decay="inverse_square_root", weight_decay=0.0
        ),
        train=Train(steps=8, compute_dtype="float32", label_smoothing=0.1),
        evaluate=Evaluate(every=0),
        checkpoint=Checkpoint(every=2, keep=10),
    )
    (folder / "run.json").write_text(to_json(run))
    assert main(["train", str(folder / "run.json"), "--workdir", str(folder / "w")]) == 0
    return folder / "w"


def params_of(workdir, step=None):
    return jax.device_get(restore_params(workdir, step)[2])


def test_the_mean_of_the_last(trained, tmp_path, capsys):
    assert (
        main(["average", "--workdir", str(trained), "--last", "3", "--output", str(tmp_path / "v")])
        == 0
    )
    assert f"{tmp_path / 'v'}: the mean of steps 4, 6, 8 of {trained}" in capsys.readouterr().out
    trees, moved = (
        [*(params_of(trained, step) for step in (4, 6, 8)), params_of(tmp_path / "v")],
        0.0,
    )
    for *parts, mean in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(
            mean, np.mean(np.asarray(parts, np.float64), axis=0), rtol=1e-6, atol=1e-7
        )
        assert mean.dtype == np.float32
        moved = max(moved, abs(parts[0] - parts[2]).max())
    assert moved > 1e-3
    average_checkpoints(trained, tmp_path / "two", [2, 8])
    a, b, mean = (
        params_of(path, step)["token_embedding"]["embedding"]
        for path, step in ((trained, 2), (trained, 8), (tmp_path / "two", 0))
    )
    np.testing.assert_array_equal(mean, (a + b) / np.float32(2))


def test_the_mean_is_evaluated_exported_and_translates(trained, tmp_path, capsys):
    average_checkpoints(trained, tmp_path / "v", [6, 8])
    assert main(["evaluate", "--workdir", str(tmp_path / "v"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert scores["step"] == 0 and 1 < scores["seq2seq"] < 6
    assert (
        main(split_words(f"predict --workdir {tmp_path / 'v'} 'one two' ten --length 5 --json"))
        == 0
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.strip().split("\n")]
    assert [line["text"] for line in lines] == ["one two", "ten"] and all(
        line.keys() == {"text", "written"} for line in lines
    )
    assert (
        main(["export", "--workdir", str(tmp_path / "v"), "--output", str(tmp_path / "out")]) == 0
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert "The mean of the checkpoints of steps 6, 8 of `w`, trained with Cloze." in card
    assert (
        "pipeline_tag: translation" in card
        and "| steps | 8 of 8 rows each |" in card
        and "(several in rows of 24 and 24)" in card
    )


def test_invalid_averages_are_refused(trained, tmp_path, capsys):
    for words, message in (
        (
            ["--last", "5"],
            "has 4 checkpoints (steps [2, 4, 6, 8]), not 5, which an average needs; checkpoint.keep=10. Lower --last",
        ),
        (["--last", "0"], "--last 0: must be at least 1"),
        (["--steps", "2", "3"], "no checkpoint of step 3; there are [2, 4, 6, 8]"),
        (["--steps", "2", "2"], "a step is given twice"),
    ):
        assert (
            main(["average", "--workdir", str(trained), "--output", str(tmp_path / "v"), *words])
            == 2
        )
        assert message in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    assert (
        main(split_words(f"average --workdir {trained} --output {tmp_path / 'full'} --last 1")) == 2
    )
    assert "not empty" in capsys.readouterr().err
    shutil.copytree(trained, tmp_path / "copy")
    (tmp_path / "copy" / "checkpoints" / "6" / "params" / "_METADATA").write_text("{")
    with pytest.raises(DamagedCheckpoint, match="checkpoint 6 is damaged"):
        average_checkpoints(tmp_path / "copy", tmp_path / "v", [4, 6, 8])
    assert not (tmp_path / "v").exists()


def test_a_checkpoint_that_is_not_finite_is_not_averaged(trained, tmp_path, monkeypatch):
    opened = trained_module.open_trained

    def open_ruined(workdir, step, parameters):
        trained = opened(workdir, step, parameters)
        is_ruined = step == 6
        return dataclasses.replace(
            trained, params=jax.tree.map(lambda x: x * np.nan if is_ruined else x, trained.params)
        )

    monkeypatch.setattr(trained_module, "open_trained", open_ruined)
    with pytest.raises(ValueError, match="step 6 are not finite .*, so the mean .*--steps"):
        average_checkpoints(trained, tmp_path / "v", [4, 6])
    assert not (tmp_path / "v").exists()
    average_checkpoints(trained, tmp_path / "v", [4, 8])


def test_training_is_smoothed_and_scoring_is_not(trained, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        program, "make_train_step", lambda *args, **how: seen.setdefault("step", how)
    )
    monkeypatch.setattr(
        program, "make_evaluation_step", lambda *args, **how: seen.setdefault("score", how)
    )
    run = restore_params(trained)[0]
    monkeypatch.setattr(jax, "jit", lambda f, **how: f)
    program.make_program(run, make_mesh(run.mesh))
    assert seen["step"]["options"].label_smoothing == 0.1
    assert seen["score"].keys() == {"compute_dtype"}
    for value in (-0.1, 1.0):
        with pytest.raises(
            ValueError, match="Train.label_smoothing is .*; it must be at least 0 and below 1"
        ):
            dataclasses.replace(run.train, label_smoothing=value)
