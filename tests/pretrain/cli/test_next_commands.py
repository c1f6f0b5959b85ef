"""The commands that a verb prints are words of a shell, whatever the name of the workdir."""

import shlex
import types

import pytest

from pretrain.cli.import_ import format_summary
from pretrain.finetune import seed_summary


class NoTensors(list):
    def list_formats(self):
        return []


def print_import(workdir):
    names = types.SimpleNamespace
    opened = names(
        architectures=["Bert"],
        tensors=NoTensors(),
        encoding=None,
        vocabulary=names(kind="wordpiece", size=9),
    )
    data = names(objective=names(name="masked_lm"), store="")
    run = names(model=names(characters=0, vocab=9), data=data, train=names(seed=0))
    return format_summary(names(workdir=workdir, folder="f"), opened, run, [], [])


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("workdir", "quoted"), [("runs/a", "runs/a"), ("ft 1", "'ft 1'")])
def test_the_commands_after_an_import_are_quoted(workdir, quoted):
    _, _, commands = print_import(workdir).partition("next:\n")
    assert f"--workdir {quoted} --store STORE" in commands
    train = next(line for line in commands.splitlines() if " train " in line)
    at = shlex.split(train).index("train")
    assert shlex.split(train)[at + 1 : at + 4] == [f"{workdir}/config.json", "--workdir", workdir]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("workdir", "quoted"), [("runs/a", "runs/a"), ("ft 1", "'ft 1'")])
def test_the_commands_after_fine_tuning_are_quoted(workdir, quoted, monkeypatch):
    monkeypatch.setattr(seed_summary, "find_best_checkpoint", lambda *_: (3, {"loss": 1.0}))
    lines = seed_summary.format_seed_summary("f", [workdir], []).splitlines()
    assert lines[0].startswith(f"{workdir}: best by loss")
    assert all(f" --workdir {quoted} --step 3 " in line for line in lines[-2:])
