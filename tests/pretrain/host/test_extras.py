"""The command that installs an extra. No page or message installs by name: `cloze` on the package
index is another project's, and no release of `cloze-pretrain` is there yet.
"""

import configparser
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from pretrain.host import extras
from pretrain.host.extras import how_to_install

ROOT = pathlib.Path(__file__).parents[3]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
NAME = SETUP["metadata"]["name"]


def find_named_installs(text):
    """Return the commands in a text that would install the distribution by its bare name from the
    package index.
    """
    found = []
    for command in re.finditer(r"\bpip3?\s+(?:install|download|wheel)\b((?:\s+\S+){1,8})", text):
        for word in command[1].split():
            if re.fullmatch(
                r"cloze(-pretrain)?(\[[^\]]*\])?([=<>~!].*)?",
                word.strip("'\"`.,;:()\\"),
                re.IGNORECASE,
            ):
                found.append(" ".join(command[0].split()))
    return found


@pytest.mark.parametrize("name", ["cloze", NAME])
@pytest.mark.parametrize(
    "command",
    [
        "pip install {}",
        "pip install '{}[metrics]'",
        'python -m pip install -U "{}[metrics,report]"',
        "pip\n  install --quiet numpy\n  `{}==0.1.0`",
        "uv pip install {}>=0.1",
    ],
)
def test_a_command_that_installs_by_name_is_found(command, name):
    assert find_named_installs(f"run {command.format(name)}, or leave it")


@pytest.mark.parametrize(
    "command",
    [
        "pip install -e .",
        "pip install -e '.[metrics]'",
        "pip install '/tmp/{}-0.1.0-py3-none-any.whl[beam]'",
    ],
)
def test_a_command_that_installs_the_checkout_is_not(command):
    assert not find_named_installs(command.format(NAME))


def test_no_file_installs_by_name():
    try:
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a checkout of git")
    files, bad = [ROOT / name for name in names if name], []
    for path in files:
        if path.is_file():
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            bad += [f"{path.relative_to(ROOT)}: {command}" for command in find_named_installs(text)]
    assert len(files) > 300 and not bad


def test_the_metadata_is_read_by_the_name_of_the_distribution():
    assert NAME == extras.DISTRIBUTION


def test_cuda_is_the_newest_cuda():
    options = SETUP["options.extras_require"]
    assert options["cuda"] == options[max(name for name in options if re.match(r"cuda\d", name))]


def test_an_extra_is_installed_from_the_checkout_in_any_folder():
    command = shlex.split(how_to_install("metrics"))
    assert command == [sys.executable, "-m", "pip", "install", "-e", f"{ROOT}[metrics]"]


def test_a_checkout_whose_path_has_spaces_is_one_word_of_the_shell(tmp_path):
    folder = tmp_path / "it's a folder; $HOME"
    folder.mkdir()
    (folder / "setup.cfg").touch()
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {how_to_install('metrics', folder)}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{folder}[metrics]"


def test_a_wheel_names_the_libraries(tmp_path, monkeypatch):
    lines = [
        "numpy<3",
        'scipy<2,>=1.14; extra == "metrics"',
        'jax[tpu]<1; platform_system == "Linux" and extra == "plan"',
        'x; extra == "my-plan"',
    ]
    monkeypatch.setattr(extras.metadata, "requires", lambda name: lines)
    assert how_to_install("metrics", tmp_path).endswith("-m pip install 'scipy<2,>=1.14'")
    assert how_to_install("plan,metrics", tmp_path).endswith(
        "-m pip install 'jax[tpu]<1' 'scipy<2,>=1.14'"
    )


def test_an_environment_without_pip_is_uvs(monkeypatch):
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    command = shlex.split(how_to_install("metrics"))
    assert command == [
        *("uv", "pip", "install", "--python", sys.executable, "-e", f"{ROOT}[metrics]")
    ]


def test_neither_checkout_nor_metadata(tmp_path, monkeypatch):
    def raise_not_found(name):
        raise extras.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras.metadata, "requires", raise_not_found)
    assert (
        how_to_install("metrics", tmp_path)
        == "pip install -e '.[metrics]' in the folder of Cloze's checkout"
    )


def test_every_extra_that_a_message_names_exists():
    calls = [
        call
        for path in (ROOT / "pretrain").rglob("*.py")
        for call in re.findall(r"how_to_install\([\"']([\w,]+)[\"']\)", path.read_text())
    ]
    assert len(calls) >= 6 and set(calls) <= set(SETUP["options.extras_require"])
    assert os.path.samefile(extras.ROOT, ROOT)
