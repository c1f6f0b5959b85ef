"""Row 18: a folder, a file or a number that is not what the command needs is named in one line, with
what it is and what to do.
"""

import json
import shutil
import subprocess
import sys

import pytest

from pretrain.__main__ import main

HUGGING_FACE = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32}


@pytest.fixture
def hugging_face(tmp_path):
    folder = tmp_path / "bert-base"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HUGGING_FACE))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_a_hugging_face_folder_is_not_a_workdir(hugging_face, configured, refused):
    before = sorted(hugging_face.iterdir())
    commands = (
        ("train", configured("bert")[0], "--workdir", hugging_face),
        ("predict", "--workdir", hugging_face, "a [MASK]"),
        ("evaluate", "--workdir", hugging_face),
        ("average", "--workdir", hugging_face, "--output", hugging_face / "mean"),
    )
    for words in commands:
        line = refused(*words)
        assert f"import {hugging_face} --workdir W" in line and "Hugging Face" in line, line
        assert len(line) < 600
    assert sorted(hugging_face.iterdir()) == before


@pytest.mark.parametrize("scored", [True, False])
def test_a_folder_of_several_seeds_names_them_and_the_best(tmp_path, refused, finished, scored):
    folder = tmp_path / "mrpc"
    for seed in range(7):
        (folder / f"seed-{seed}" / "checkpoints").mkdir(parents=True)
        shutil.copy(finished[1] / "config.json", folder / f"seed-{seed}")
    if scored:
        runs = {f"elsewhere/mrpc/seed-{seed}": {"step": 4, "f1": seed % 4} for seed in range(7)}
        (folder / "scores.json").write_text(json.dumps({"metric": "f1", "runs": runs}))
    for verb in ("predict", "evaluate", "export"):
        words = {"predict": ["a [MASK]"], "export": ["--output", tmp_path / "out"]}
        line = refused(verb, "--workdir", folder, *words.get(verb, []))
        assert f"{folder}/seed-0" in line and "and 2 more" in line, line
        assert (f"--workdir {folder}/seed-3" in line) == scored


def test_what_a_folder_that_is_no_workdir_is(tmp_path, refused):
    (tmp_path / "file").touch()
    for name, problem in (("absent", "no such folder"), ("file", "a file"), (".", "it has no")):
        line = refused("predict", "--workdir", tmp_path / name, "a [MASK]")
        assert "not a workdir" in line and problem in line and "make one" in line, line


def test_an_empty_data_store_is_named_as_such(configured, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("train", configured("bert")[0], "--workdir", tmp_path / "w", "data.store=")
    assert "data.store is empty" in line and "--output STORE" in line and " . " not in line


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["data.py", "models.py", "configs.py", "models/__init__.py"])
def test_a_file_of_the_caller_that_hides_a_package_is_named(tmp_path, root, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "pretrain", "describe", "bert_base"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"error: {tmp_path / name} hides" in line and "another folder" in line


@pytest.mark.fast
def test_a_folder_that_hides_the_package_of_an_editable_install_is_named(tmp_path, root):
    """Such an install finds the packages after all folders of sys.path."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); import pretrain.host.hiding as hiding; "
        "sys.path[:] = [sys.argv[2], *(path for path in sys.path if path != sys.argv[1])]; "
        "print(hiding.find_hiding_file())"
    )
    (tmp_path / "models").mkdir()
    words = [sys.executable, "-I", "-S", "-c", code, str(root), str(tmp_path)]
    line = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert line.startswith(f"{tmp_path / 'models'} hides the package 'models' of Cloze (in {root})")
    (tmp_path / "models").rmdir()
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "\n"


def test_a_folder_of_the_caller_without_modules_hides_nothing(tmp_path, root):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text.txt").write_text("a text")
    done = subprocess.run(
        [sys.executable, "-m", "pretrain", "describe", "bert_base", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_steps_below_the_step_at_which_a_configuration_stops(configured, refused, tmp_path):
    words = ("train", configured("bert")[0], "--workdir", tmp_path / "w", "train.stop_at_step=10")
    line = refused(*words, "train.steps=5")
    assert "stop_at_step=10 is above Train.steps=5" in line and "or to 0" in line


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["train.stop_at_step=12", "train.steps=20"], "set train.stop_at_step=0 or to a larger"),
        (["train.stop_at_step=8"], "set train.steps=N to a larger number and train.stop_at_step=0"),
        ([], "set train.steps=N to a larger number"),
    ],
)
def test_a_run_at_its_end_names_the_field_that_ends_it(
    copied, configured, capsys, overrides, remedy
):
    words = ["train", str(configured("bert")[0]), "--workdir", str(copied[1]), *overrides]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "has already been reached" in out and remedy in out
    assert ("stop_at_step" in out) == bool(overrides)


def test_average_without_options_takes_all_that_there_are(copied, refused, tmp_path, capsys):
    _, workdir = copied
    words = ["average", "--workdir", str(workdir), "--output"]
    assert main([*words, str(tmp_path / "mean")]) == 0
    assert "the mean of steps 4, 8, 12" in capsys.readouterr().out
    for step in ("4", "8"):
        shutil.rmtree(workdir / "checkpoints" / step)
    line = refused(*words, tmp_path / "one")
    assert "has 1 checkpoint (steps [12]), not 2" in line and "checkpoint.keep" in line
    assert not (tmp_path / "one").exists()
