"""The sources that the build of the wheel takes from a checkout, and what it writes there.

The build runs in processes of its own, because setuptools changes the one that imports it.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.test_layout import ROOMS

ROOT = pathlib.Path(__file__).parents[1]
STAGED = """
import cloze_backend, pathlib
with cloze_backend.stage_sources():
    print(*sorted(str(path) for path in pathlib.Path("cloze/configs").rglob("*")), sep="\\n")
"""


@pytest.fixture
def checkout(tmp_path):
    """Return a small checkout."""
    for name in ("setup.cfg", "README.md", "LICENSE", "pretrain/publish/renamed_imports.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "distribution", tmp_path / "distribution", ignore=ignored)
    for room in ROOMS:
        (tmp_path / room).mkdir(exist_ok=True)
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def run_backend(checkout, code):
    """Run code next to the checkout's build and return the lines that it prints."""
    place = {"PYTHONPATH": str(checkout / "distribution"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=os.environ | place,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_files_that_git_does_not_track_stay_out(checkout):
    git = ["git", "-C", checkout, "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    (checkout / "configs" / "private_run.py").touch()
    (checkout / "configs" / "mine").mkdir()
    (checkout / "configs" / "mine" / "run.py").touch()
    assert run_backend(checkout, STAGED) == ["cloze/configs/__init__.py"]
    shutil.rmtree(checkout / ".git")  # as in an sdist, where all files are
    assert "cloze/configs/private_run.py" in run_backend(checkout, STAGED)


def test_hidden_files_stay_out(checkout):
    (checkout / "configs" / ".#bert_tiny.py").symlink_to("me@host.1234:1700000000")  # Emacs's lock
    (checkout / "configs" / "__pycache__").mkdir()
    assert run_backend(checkout, STAGED) == ["cloze/configs/__init__.py"]


def test_the_question_what_the_build_requires_writes_nothing(checkout):
    before = sorted(checkout.rglob("*"))
    code = "import cloze_backend; print(cloze_backend.get_requires_for_build_wheel())"
    assert run_backend(checkout, code) == ["[]"]
    assert sorted(checkout.rglob("*")) == before
