"""The processes of `local` execute no file of the current folder."""

import os
import subprocess
import sys

import pytest

from pretrain.cli import local


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["json.py", "numpy.py", "data.py"])
def test_a_file_of_the_current_folder_is_not_executed(tmp_path, root, name):
    (tmp_path / name).write_text("open('executed', 'w').close()\n")
    program = f"import sys; from pretrain.__main__ import main; sys.exit(main(['local', '2', *{['describe', 'bert_tiny']!r}]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert done.returncode == 0 and "[1] " in done.stdout, done.stdout + done.stderr


def test_the_processes_of_a_checkout_find_its_packages_from_any_folder(tmp_path, root):
    command = local.build_command(0, 1, 1, 7, ["--help"])
    environment = command["env"] | {"PYTHONPATH": command["env"]["PYTHONPATH"].split(":")[0]}
    for option in ([], ["-S"]):  # without the site-packages, in which it may be installed, too
        words = [command["args"][0], *option, *command["args"][1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "VERB ..." in done.stdout, done.stderr


def test_the_workers_of_prepare_execute_no_file_of_the_current_folder(tmp_path, root):
    here, program = tmp_path / "here", tmp_path / "bin" / "program.py"
    for folder in (here, program.parent):
        folder.mkdir()
    (here / "socket.py").write_text("open('executed', 'w').close()\n")
    (here / "a.txt").write_text("a few words of text\n\nand a few more of them\n" * 40)
    words = "prepare a.txt --output s --document block --vocab-size 23 --workers 1".split()
    program.write_text(
        f"from pretrain.__main__ import main\nif __name__ == '__main__':\n    main({words!r})\n"
    )
    done = subprocess.run(
        [sys.executable, program],  # as the command `cloze` does, without a flag
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    names = sorted(path.name for path in here.iterdir())
    assert names == ["a.txt", "s", "socket.py"], done.stdout + done.stderr
