"""Restarts: which endings are restarted, how often, and what is printed."""

import signal
from types import SimpleNamespace

import pytest

from pretrain.cli.local import find_failed_process
from pretrain.processes import restarts
from pretrain.processes.restarts import Ending
from pretrain.processes.watchdog import HUNG

KILLED, HANGS, DONE = Ending(-signal.SIGKILL, 1), Ending(HUNG, 2), Ending(0)


def run_supervised(endings, tries, workdir="nowhere", saves=()):
    """Return (the ending, number of starts, the pauses) of starts that end as listed, the last
    repeatedly; saves: {start: the step that it saves}.
    """
    started, pauses = [], []

    def start_run():
        started.append(1)
        assert len(started) < 50, "it does not end"
        if len(started) in saves:
            (workdir / "checkpoints" / str(saves[len(started)])).mkdir(parents=True)
            (workdir / "checkpoints" / "99.tmp").mkdir(exist_ok=True)
        return endings[min(len(started), len(endings)) - 1]

    ending = restarts.supervise_restarts(
        start_run, tries, ["train", "bert", "--workdir", str(workdir)], sleep=pauses.append
    )
    return ending, len(started), pauses


@pytest.mark.parametrize(
    "ending",
    [
        DONE,
        Ending(1),
        Ending(2),
        Ending(143),
        Ending(130),
        Ending(-signal.SIGTERM),
        Ending(-signal.SIGINT),
        KILLED._replace(was_stopped=True),
    ],
)
def test_a_run_that_ended_or_was_stopped_is_not_restarted(ending):
    assert run_supervised([ending], 3) == (ending, 1, [])


def test_a_killed_or_hung_run_is_restarted_after_growing_pauses(capsys):
    assert run_supervised([KILLED, HANGS, KILLED, DONE], 3) == (DONE, 4, [1.0, 2.0, 4.0])
    error_lines = capsys.readouterr().err.splitlines()
    assert len(error_lines) == 3
    assert error_lines[0].endswith(
        " process 1 died of SIGKILL; restart 1 of at most 3 in a row, in 1 s, from the newest checkpoint, if any"
    )
    assert " process 2 hung; restart 2 of at most 3" in error_lines[1]
    assert run_supervised([KILLED], 0) == (KILLED, 1, [])
    assert KILLED.exit_code == 137 and HANGS.exit_code == 75


def test_a_signal_without_a_name_is_named_by_its_number(capsys):
    """Python has no names for the real-time signals between the first and the last."""
    number = signal.SIGRTMIN + 3
    assert run_supervised([Ending(-number), DONE], 3)[:2] == (DONE, 2)
    assert f" process 0 died of signal {number}; restart 1 " in capsys.readouterr().err


def test_restarts_end_after_starts_without_a_checkpoint(tmp_path, capsys):
    ending, starts, pauses = run_supervised([KILLED], 2, tmp_path, saves={2: 8, 3: 40})
    assert (ending, starts) == (KILLED, 5)
    assert pauses == [1.0, 1.0, 1.0, 2.0]  # the third start was the last to make progress
    errors = capsys.readouterr().err
    assert (
        "from step 8\n" in errors
        and "from step 40\n" in errors
        and "giving up after 2 restarts without a new checkpoint" in errors
    )


def test_pauses_have_an_end():
    assert run_supervised([KILLED] * 12 + [DONE], 20)[2][-1] == restarts.LONGEST_PAUSE


def test_the_first_that_failed_is_the_one_that_died_not_one_that_noticed():
    def make_processes(*codes):
        return [SimpleNamespace(poll=lambda code=code: code, returncode=code) for code in codes]

    assert find_failed_process(make_processes(1, None, -signal.SIGKILL)) == 2
    assert find_failed_process(make_processes(1, HUNG, 0)) == 1
    assert find_failed_process(make_processes(0, None, 7)) == 2
    assert find_failed_process(make_processes(0, None)) is None
