"""launch.sh on a stand-in for the checkout and its Python: what it refuses, where it works, and what
it answers without packages. Nothing is installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# A stand-in for Python: its version is in a file next to it, makes environments of
# itself, and records in the file LOG what else it is asked for.
PYTHON = """#!/bin/sh
case "$*" in
  *"pip --version" | *ensurepip* | *accelerator_detection*) exit 0 ;;
  *"sys.exit("*version_info*) exec {python} -c "import sys; sys.version_info = $(sed 's/.*/(&, 0)/; s/[.]/, /' "$0.version"); $2" ;;
  *version_info*) cat "$0.version"; exit 0 ;;
  *"import VERBS"*) exec {python} "$@" ;;
  --version) echo "Python $(cat "$0.version").1"; exit 0 ;;
  "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0.version" .venv/bin/python.version ;;
esac
echo "$*" >> "$LOG"
[ "$4" != --quiet ] || [ -z "$NO_PACKAGES" ]
"""


NAMES = ("python", "python3", *(f"python3.{minor}" for minor in range(11, 15)))


def write_python(folder, version, name="python3"):
    """Write a stand-in for Python of a version to a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(PYTHON.format(python=sys.executable))
    (folder / name).chmod(0o755)
    (folder / f"{name}.version").write_text(version + "\n")
    return folder / name


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "check out"
    for name in ("launch.sh", "setup.cfg", "constraints.txt", "pretrain/host/command.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "pretrain" / "cli", folder / "pretrain" / "cli")
    (folder / "pretrain" / "__init__.py").touch()
    return folder


@pytest.fixture
def launch(checkout, tmp_path):
    """Return launch(*words), which runs launch.sh: (status, what the stand-ins were asked, stderr)."""

    def run(*words, program=checkout / "launch.sh", cwd=checkout, **environ):
        log = tmp_path / "log"
        log.write_text("")
        left_out = ("CLOZE_PYTHON", "CLOZE_CONSTRAINTS", "CDPATH", "PYTHONPATH")
        clean = {name: value for name, value in os.environ.items() if name not in left_out}
        environ = clean | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "LOG": str(log)} | environ
        environ = {name: value for name, value in environ.items() if value is not None}
        done = subprocess.run(
            ["bash", program, *words], cwd=cwd, env=environ, capture_output=True, text=True
        )
        return done.returncode, log.read_text().splitlines(), done.stderr

    return run


def test_a_python_without_wheels_is_passed_over(launch, tmp_path, checkout):
    for name in NAMES:
        write_python(tmp_path / "bin", "3.15", name)
    status, log, error = launch("doctor")
    assert (status, log) == (1, [])
    assert error == (
        "error: Cloze needs Python 3.11 to 3.14, and PATH has none; set CLOZE_PYTHON to one\n"
    )
    status, log, error = launch("doctor", CLOZE_PYTHON="python3.13")
    assert status == 1 and "CLOZE_PYTHON=python3.13 is Python 3.15.1: Cloze needs" in error
    write_python(tmp_path / "bin", "3.12", "python3.12")
    status, log, error = launch("doctor")
    assert (status, error) == (0, "") and log[0] == "-m venv .venv"
    assert (checkout / ".venv/bin/python.version").read_text() == "3.12\n"
    assert log[-1] == "-m pretrain doctor"


def test_a_python_without_tensorflow_comes_last(launch, tmp_path, checkout):
    for name in NAMES:
        write_python(tmp_path / "bin", "3.12" if name == "python3.12" else "3.14", name)
    assert launch("doctor")[0] == 0
    assert (checkout / ".venv/bin/python.version").read_text() == "3.12\n"
    shutil.rmtree(checkout / ".venv")
    write_python(tmp_path / "bin", "3.14", "python3.12")
    status, log, error = launch("doctor")
    assert (status, error) == (0, "")
    assert (checkout / ".venv/bin/python.version").read_text() == "3.14\n"
    assert any(line.endswith("-e .[report,tfdata]") for line in log)  # which is empty there


def test_a_newer_python_controls_pods(launch, tmp_path):
    write_python(tmp_path / "bin", "3.15")
    assert launch("pod", "stop") == (0, ["-m pretrain pod stop"], "")


def test_the_setup_admits_the_same_pythons():
    assert "\npython_requires = >=3.11,<3.15\n" in (ROOT / "setup.cfg").read_text()


def test_an_environment_of_another_python_than_its_packages_is_named(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    assert launch("doctor")[0] == 0
    (checkout / ".venv/lib/python3.11/site-packages").mkdir(parents=True)
    assert launch("doctor") == (0, ["-m pretrain doctor"], "")
    (checkout / ".venv/bin/python.version").write_text(
        "3.12\n"
    )  # the system's python3 was replaced
    status, log, error = launch("doctor")
    assert (status, log) == (2, [])
    assert error == (
        f"error: {checkout}/.venv has the packages of another Python than its own, which is 3.12 "
        "now: remove this folder, and call again\n"
    )
    (checkout / ".venv/lib/python3.12/site-packages").mkdir(parents=True)  # venv --upgrade
    assert "-m pip install" in launch("doctor")[1][0]


def test_a_failed_first_call_does_not_choose_the_python_for_ever(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.13")
    python = write_python(tmp_path / "other", "3.12")
    assert launch("doctor", NO_PACKAGES="1")[0] == 1
    status, log, error = launch("doctor", CLOZE_PYTHON=str(python))
    assert (status, log) == (2, [])
    assert f".venv has Python 3.13, and CLOZE_PYTHON={python} is 3.12: remove" in error
    (checkout / ".venv/bin/python.version").write_text("3.15\n")
    error = launch("doctor")[2]
    assert ".venv has Python 3.15, and Cloze needs 3.11 to 3.14: remove this folder" in error


def test_questions_about_verbs_install_nothing(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    for words in (["trian", "bert_tiny"], ["--help"], ["-h"], [""]):
        assert launch(*words)[1] == [" ".join(["-m pretrain", *words])], words
        assert not (checkout / ".venv").exists()
    assert launch("train", "--help")[1][0] == "-m venv .venv"


def test_a_link_and_settings_of_the_shell_do_not_lead_elsewhere(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    (tmp_path / "links" / "check out").mkdir(parents=True)
    link = tmp_path / "links" / "cloze"
    link.symlink_to("../check out/launch.sh")
    again = tmp_path / "again"
    again.symlink_to(link)
    status, log, error = launch("doctor", program=again, cwd=tmp_path)
    assert (status, error) == (0, "") and log[-1] == "-m pretrain doctor"
    status, log, error = launch(
        *("doctor",),
        program="check out/launch.sh",
        cwd=tmp_path,
        CDPATH=str(tmp_path / "links"),
        PYTHONSAFEPATH="1",
    )
    assert (status, log, error) == (0, ["-m pretrain doctor"], "")


def test_a_path_that_is_not_looked_up_where_the_caller_is_gets_a_note(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    caller = tmp_path / "my work"
    (caller / "runs" / "a").mkdir(parents=True)
    (caller / "doctor").mkdir()
    note = f"note: launch.sh works in {checkout}: runs/a is looked up there, not in {caller}, which has it too; give an absolute path\n"
    for words in (["--workdir", "runs/a"], ["--workdir=runs/a"], ["data.store=runs/a"]):
        assert launch("doctor", *words, cwd=caller)[::2] == (0, note), words
    (checkout / "runs" / "a").mkdir(parents=True)
    for words, cwd in (
        (["--workdir", "runs/a"], checkout),
        (["--workdir", "runs/b"], caller),
        (["--workdir", str(caller / "runs")], caller),
    ):
        assert launch("doctor", *words, cwd=cwd)[::2] == (0, ""), words


def test_a_note_that_nobody_can_read_ends_nothing(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    caller = tmp_path / "my work"
    (caller / "runs" / "a").mkdir(parents=True)
    for streams in ("2>&-", "1>&- 2>&-", "1>/dev/full 2>/dev/full"):
        shutil.rmtree(checkout / ".venv", ignore_errors=True)
        script = tmp_path / "closed.sh"
        script.write_text(f'exec bash "{checkout}/launch.sh" "$@" {streams}\n')
        status, log, error = launch("doctor", "--workdir", "runs/a", program=script, cwd=caller)
        asked = ["-m pretrain doctor --workdir runs/a"]
        assert (status, log[-1:], error) == (0, asked, ""), streams


@pytest.mark.parametrize("home", [None, "/home/a"])
def test_compiled_programs_are_read_from_folders_of_the_caller(launch, tmp_path, checkout, home):
    python = write_python(tmp_path / "bin", "3.11")
    python.write_text(PYTHON.format(python=sys.executable) + 'env >> "$LOG"\n')
    _, log, _ = launch("doctor", HOME=home, XDG_CACHE_HOME=None, JAX_COMPILATION_CACHE_DIR=None)
    base = home or checkout
    assert [line for line in log if line.startswith("JAX_COMP")] == [
        f"JAX_COMPILATION_CACHE_DIR={base}/.cache/cloze/jax"
    ]


def test_a_checkout_that_cannot_be_written_to_is_named():
    """Root may write everywhere, so that another user calls."""
    with tempfile.TemporaryDirectory() as folder:
        checkout, python = pathlib.Path(folder, "cloze"), pathlib.Path(folder, "bin", "python3")
        checkout.mkdir()
        for name in ("launch.sh", "setup.cfg", "constraints.txt"):
            shutil.copy(ROOT / name, checkout / name)
        write_python(python.parent, "3.11")
        for path in (pathlib.Path(folder), checkout, *checkout.iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            done = subprocess.run(
                ["bash", checkout / "launch.sh", "doctor"],
                env={"PATH": "/usr/bin:/bin", "CLOZE_PYTHON": str(python), "LOG": "/dev/null"},
                user=65534 if os.getuid() == 0 else None,
                capture_output=True,
                text=True,
            )
        finally:
            for path in (pathlib.Path(folder), checkout):
                path.chmod(0o755)
    assert done.returncode == 1
    assert f"error: {checkout} cannot be written to, and .venv is made there" in done.stderr


def test_a_checkout_without_versions_is_named(launch, tmp_path, checkout):
    write_python(tmp_path / "bin", "3.11")
    (checkout / "constraints.txt").unlink()
    status, _, error = launch("doctor")
    assert (status, error) == (
        2,
        f"error: {checkout} has no constraints.txt: call launch.sh of a whole checkout\n",
    )


@pytest.mark.parametrize(
    ("words", "asked", "extra"),
    [
        ("test", "-m pytest -m not more --numprocesses 2", "[test,tfdata]"),
        ("test all", "-m pytest --numprocesses 2", "[test,peers,tfdata]"),
        ("test fast", "-m pytest -m not slow and not more --numprocesses 2", "[test,tfdata]"),
        ("test tests/test_docs.py -k links", "-m pytest tests/test_docs.py -k links", "[test,"),
    ],
)
def test_a_tier_of_tests_is_chosen_unless_tests_are_named(launch, tmp_path, words, asked, extra):
    write_python(tmp_path / "bin", "3.11")
    status, log, error = launch(*words.split())
    assert (status, error) == (0, "") and log[-1].startswith(asked)
    assert any(extra in line for line in log if "pip install" in line)
