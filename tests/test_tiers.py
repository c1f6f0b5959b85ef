"""The tiers of the suite: which cases `launch.sh test` leaves to `test all`, and when `.ci/run` runs
other Pythons.
"""

import pathlib
import re
import shutil
import subprocess
import types

import pytest

from tests.conftest import find_marks
from tests.tiers import is_left_out, mark_more

ROOT = pathlib.Path(__file__).parents[1]


class Item:
    """A stand-in for a collected case of a test with the marker `held_by`."""

    def __init__(self, case, *names):
        self.nodeid = f"tests/test_it.py::test_it[{case}]"
        self.callspec = types.SimpleNamespace(id=case)
        self.held_by = types.SimpleNamespace(args=names) if names else None
        self.marks = []

    def get_closest_marker(self, name):
        return getattr(self, name)

    def add_marker(self, mark):
        self.marks.append(mark.name)


@pytest.mark.parametrize(
    ("names", "held"),
    [
        (("bert", "t5-False"), ["bert-True", "bert-False", "t5-False"]),
        ((2,), ["bert-True", "bert-False"]),
        ((), ["bert-True", "bert-False", "electra-True", "t5-True", "t5-False"]),
    ],
)
def test_the_cases_that_hold_a_promise_are_chosen(names, held):
    cases = ["bert-True", "bert-False", "electra-True", "t5-True", "t5-False"]
    items = [Item(case, *names) for case in cases]
    mark_more(items, is_tier=True)
    assert [item.callspec.id for item in items if not item.marks] == held
    assert {mark for item in items for mark in item.marks} <= {"more"}


def test_a_promise_that_no_case_holds_is_named():
    with pytest.raises(pytest.UsageError, match=r"test_it: no case has .* held_by\('gpt2',\)"):
        mark_more([Item("bert", "gpt2"), Item("t5", "gpt2")], is_tier=True)
    mark_more([Item("bert", "gpt2")], is_tier=False)  # one case that was named on the command line


def test_a_tier_reads_only_the_files_that_it_runs(tmp_path):
    marks = find_marks(ROOT / "tests/benchmarks/papers/test_downstream.py")
    assert "more" in marks and is_left_out(marks, "not slow and not more")
    assert find_marks(ROOT / "tests/faults/test_two_writers.py") == {"slow"}
    assert find_marks(ROOT / "tests/test_tiers.py") == set()
    fast = find_marks(ROOT / "tests/pretrain/reporting/test_fonts.py")
    assert not is_left_out(fast, "not slow and not more")
    text = "pytestmark = [pytest.mark.more, pytest.mark.slow]\n"
    (tmp_path / "test_it.py").write_text(text)
    assert find_marks(tmp_path / "test_it.py") == {"more", "slow"}
    assert is_left_out({"slow"}, "not slow and not more") and not is_left_out({"slow"}, "not more")
    assert not is_left_out({"more"}, "") and not is_left_out({"fast"}, "not slow and not more")


def test_each_guarantee_is_held_by_every_tier_but_the_fast_one():
    """No file that a guarantee names is left to `test all`."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    files = {ROOT / "docs" / link for link in re.findall(r"\]\((\.\./tests/\S+\.py)\)", page)}
    assert len(files) > 40
    left = [file.name for file in files if re.search(r"^pytestmark.*more", file.read_text(), re.M)]
    assert not left


@pytest.fixture
def checkout(tmp_path):
    """Return a repository with .ci/run, whose launch.sh records its words."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    for name in (".ci/lock", "launch.sh", ".venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$LOG"\n')
        (folder / name).chmod(0o755)
    for name in ("setup.cfg", "constraints.txt", "README.md"):
        (folder / name).write_text("first\n")
    (folder / ".gitignore").write_text(".venv\n")
    commit(folder, "init", "-q")
    commit(folder)
    return folder


def commit(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in [words] if words else [("add", "-A"), ("commit", "-qm", "a", "--allow-empty")]:
        subprocess.run(["git", *names, *command], cwd=folder, check=True)


def test_other_pythons_run_where_what_is_installed_has_changed(checkout, tmp_path):
    for version in ("3.12", "3.13"):
        python = tmp_path / "bin" / f"python{version}"
        python.parent.mkdir(exist_ok=True)
        python.write_text(f"#!/bin/sh\necho {python}\n")
        python.chmod(0o755)
    log = tmp_path / "log"

    def count_pythons(*words):
        log.write_text("")
        path = f"{python.parent}:/usr/bin:/bin"
        environ = {"PATH": path, "LOG": str(log), "HOME": str(tmp_path)}
        subprocess.run([checkout / ".ci/run", *words], env=environ, check=True)
        asked = log.read_text().splitlines()
        assert ("launch.sh test all" in asked) == (not words)
        return asked.count("launch.sh test fast")

    assert count_pythons() == 2  # none passed before
    assert count_pythons() == 0
    commit(checkout)  # .ci/passed.txt
    (checkout / "README.md").write_text("second\n")
    commit(checkout)
    assert count_pythons() == 0
    (checkout / "constraints.txt").write_text("second\n")
    commit(checkout)
    assert count_pythons() == 2
    assert count_pythons("pythons") == 2
