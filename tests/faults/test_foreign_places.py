"""Row 18: an unsuitable workdir is refused before JAX is imported, with a remedy, and nothing is
written there.
"""

import os
import shutil
import subprocess
import sys

import pytest


def a_file(folder):
    (folder / "file").write_text("notes")
    return folder / "file", "is a file"


def below_a_file(folder):
    return a_file(folder)[0] / "run", "is a file"


def somebody_elses_folder(folder):
    (folder / "photos").mkdir()
    (folder / "photos" / "one.jpg").write_text("cat")
    return folder / "photos", "holds one.jpg"


def somebody_elses_checkpoints(folder):
    (folder / "model" / "checkpoints" / "100").mkdir(parents=True)
    (folder / "model" / "checkpoints" / "100" / "weights.pt").write_text("weeks of work")
    return folder / "model", "holds checkpoints"


def somebody_elses_vocabulary(folder):
    (folder / "words" / "vocabulary").mkdir(parents=True)
    (folder / "words" / "vocabulary" / "essay.txt").write_text("mine")
    return folder / "words", "holds vocabulary"


def somebody_elses_metrics(folder):
    (folder / "results").mkdir()
    (folder / "results" / "metrics.jsonl").write_text('{"epoch": 1}\n')
    return folder / "results", "holds metrics.jsonl"


def somebody_elses_source(folder):
    (folder / "project").mkdir()
    (folder / "project" / "source.json").write_text('{"author": "me"}\n')
    return folder / "project", "holds source.json"


def make_unwritable(folder):
    return "/proc/run", "cannot be written"


def unwritable_though_it_is_there(folder):
    return "/proc/sys", "cannot be written"


def a_dangling_link(folder):
    (folder / "link").symlink_to(folder / "gone")
    return folder / "link", "which is not there"


def below_a_dangling_link(folder):
    return a_dangling_link(folder)[0] / "run", "which is not there"


PLACES = (
    a_dangling_link, below_a_dangling_link, a_file, below_a_file, somebody_elses_folder,
    somebody_elses_checkpoints, somebody_elses_vocabulary, somebody_elses_metrics,
    somebody_elses_source, make_unwritable, unwritable_though_it_is_there,
)  # fmt: skip


@pytest.mark.held_by(4)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_an_unsuitable_workdir_is_refused(configured, refused, tmp_path, record_property, place):
    workdir, message = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    error_message = refused("train", configured("bert")[0], "--workdir", workdir)
    assert message in error_message and "name another --workdir" in error_message
    assert sorted(tmp_path.rglob("*")) == before
    record_property("refused", 1)


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    "leftover",
    [
        "checkpoints", ".config.json.part-0123abcd", "goodput.json", "compiled", "pinned",
        "lost+found", ".preflight-0-1-2", "run.log",
    ],
)  # fmt: skip
def test_files_of_a_killed_start_or_a_shell_do_not_prevent_a_start(tmp_path, leftover):
    from pretrain.workdir.check import check_workdir_path

    (tmp_path / leftover).touch()
    check_workdir_path(tmp_path)
    check_workdir_path(tmp_path / "not" / "there" / "yet")
    assert not (tmp_path / "not").exists()


def test_a_refusal_comes_before_jax(configured, tmp_path, root, record_property):
    workdir, _ = a_file(tmp_path)
    code = (
        "import resource, sys, pretrain.__main__ as program\n"
        f"status = program.main(['train', {str(configured('bert')[0])!r}, '--workdir', {str(workdir)!r}])\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(status, 'jax' in sys.modules, used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        env=os.environ,
        check=True,
    )
    status, imported, seconds = done.stdout.split()
    assert (status, imported) == ("2", "False") and float(seconds) < 5
    record_property("seconds of CPU", round(float(seconds), 2))


FILES = ("config.json", "metrics.jsonl", "goodput.json", "source.json", "environment.jsonl")


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", [*FILES, "pinned", "vocabulary/pieces.json", "checkpoints/12/a"])
def test_a_pipe_in_a_workdir_is_refused_by_every_verb(
    configured, copied, refused, tmp_path, record_property, name
):
    """Opening a pipe waits for a writer, and SIGTERM does not end the wait."""
    workdir, place = copied[1], copied[1] / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    output = tmp_path / "output"
    for words in (
        ["train", configured("bert")[0]],
        ["predict", "fox [MASK]"],
        ["export", "--output", output],
        ["report", "--output", output],
    ):
        line = refused(*words, "--workdir", workdir)
        assert f"{place}: is a named pipe; expected a regular file" in line
    assert not output.exists()
    record_property("refused", 1)


def test_a_pipe_in_the_place_of_each_file_of_a_store_is_refused(
    configured, refused, tmp_path, record_property
):
    path, _, store = configured("bert")
    files = [file.relative_to(store.path) for file in store.path.rglob("*") if file.is_file()]
    files = [name for name in files if name.name not in ("in_use", "lock")]
    assert len(files) > 5
    for number, name in enumerate(files):
        copy = tmp_path / f"store{number}"
        shutil.copytree(store.path, copy)
        (copy / name).unlink()
        os.mkfifo(copy / name)
        words = ["train", path, "--workdir", tmp_path / "run", f"data.store={copy}"]
        assert f"{copy / name}: is a named pipe" in refused(*words)
    record_property("refused", len(files))


def test_a_workdir_that_is_not_utf8_is_refused(configured, copied, refused, tmp_path):
    workdir = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    line = refused("train", configured("bert")[0], "--workdir", workdir)
    assert "are not UTF-8" in line and not os.path.exists(workdir)
    copied[1].rename(workdir)
    assert "are not UTF-8" in refused("predict", "fox [MASK]", "--workdir", workdir)


def test_a_path_that_is_utf8_in_a_locale_without_it_names_the_locale():
    code = "import data.corpus.paths as p, sys; p.check_utf8_path(sys.argv[1])"
    environ = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", code, "caf\u00e9".encode()],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert "set PYTHONUTF8=1" in done.stderr and "is 'caf\\xe9' in UTF-8" in done.stderr


def test_a_deleted_current_folder_is_named(tmp_path, root):
    code = (
        "import os, sys, pretrain.__main__ as program\n"
        "os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
        "sys.exit(program.main(['describe', 'bert_tiny']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "gone"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: the current folder no longer exists; ")
