"""Row 35: a user without a name, as `docker run --user 1234` gives one, trains and resumes."""

import os
import pwd
import shutil
import subprocess
import sys

import pytest
from etils import epath

from pretrain.__main__ import main
from pretrain.cli import doctor
from pretrain.workdir import orbax_manager
from tests.faults.running import ROOT, list_steps

NUMBER = 54321


@pytest.fixture
def nameless(tmp_path):
    """Return run(*words) -> the process of a command of a user and a group without names.

    In a user namespace another number stands for the caller, who can read this Python. The home
    cannot be written.
    """
    words = ["unshare", "--user", f"--map-user={NUMBER}", f"--map-group={NUMBER + 1}"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*words, "true"], capture_output=True).returncode
    ):
        pytest.skip("a user namespace cannot be made here")
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    dropped = ("USER", "LOGNAME", "XDG_CACHE_HOME")
    environment = {name: os.environ[name] for name in os.environ if name not in dropped}

    def run(*command):
        return subprocess.run(
            [*words, sys.executable, "-m", "pretrain", *map(str, command)],
            cwd=ROOT,
            env=environment | {"HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_a_run_saves_and_resumes(nameless, configured, tmp_path, record_property):
    workdir = tmp_path / "run"
    # TensorFlow, which takes as long to import as the rest to run, is imported once.
    for step, feed in ((2, "auto"), (4, "threads")):
        words = ("train", configured("bert")[0], "--workdir", workdir)
        done = nameless(*words, f"train.stop_at_step={step}", f"data.feed={feed}")
        assert done.returncode == 0 and f"saved step {step}" in done.stderr, done.stderr
    assert "continuing after step 2" in done.stderr
    assert list_steps(workdir) == ([1, 2, 3, 4], [2, 4])
    record_property("runs of nameless users", 1)


def test_unknown_owners_are_named_by_their_numbers(tmp_path):
    """A file of another machine's user is one as well."""
    assert pwd.getpwuid(NUMBER).pw_name == str(NUMBER)
    assert pwd.getpwuid(0).pw_name == "root"
    if os.getuid():
        pytest.skip("only root gives files away")
    (tmp_path / "file").write_text("text")
    os.chown(tmp_path / "file", NUMBER, NUMBER + 1)
    found = epath.Path(tmp_path / "file").stat()
    assert (found.owner, found.group) == (str(NUMBER), str(NUMBER + 1)) and found.length == 4


@pytest.mark.held_by(1)
@pytest.mark.parametrize("home", [None, ""])
def test_a_user_without_a_name_and_a_home_has_the_root_folder(monkeypatch, home):
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert pwd.getpwuid(NUMBER).pw_dir == "/"


def test_doctor_tries_a_save(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor, "find_accelerators", list)
    assert main(["doctor", "--workdir", str(tmp_path / "run")]) == 0
    assert "a checkpoint can be saved and restored" in capsys.readouterr().out

    def fail(*arguments):
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr(orbax_manager, "save_items", fail)
    assert main(["doctor", "--workdir", str(tmp_path / "run")]) == 1
    output = capsys.readouterr().out
    assert "a checkpoint cannot be saved: " in output and "uid not found: 54321" in output
    assert "something is missing" in output
    assert not list((tmp_path / "run").iterdir())
