"""The watchdog ends what takes too long and nothing else; it exits whatever hangs."""

import subprocess
import sys
import threading
import time

import pytest

from pretrain.config import load
from pretrain.processes import watchdog
from pretrain.processes.watchdog import HUNG, Peers, Watchdog
from pretrain.settings import Limits
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.goodput import Ledger


class Left(Exception):
    """Replaces the end of the process: it ends only the watchdog's thread."""


@pytest.fixture
def exit_statuses(monkeypatch):
    """Return the statuses with which the process would have ended."""
    statuses = []

    def note_status(status):
        statuses.append(status)
        raise Left

    monkeypatch.setattr(watchdog.os, "_exit", note_status)
    monkeypatch.setattr(watchdog, "TICK", 0.01)
    monkeypatch.setattr(watchdog, "REPORT_LIMIT", 0.3)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    return statuses


def make_peers(announce=lambda cause: None, find_hung=lambda: "", leave=lambda: None):
    return Peers(announce, find_hung, leave)


def wait_until(holds):
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    assert holds()


def test_a_hang_is_reported_with_the_stacks_of_all_threads(exit_statuses, tmp_path, capfd):
    with Watchdog(Limits(step=0.05), tmp_path / "stacks.txt") as watching:
        watching.enter_phase("step")
        wait_until(lambda: exit_statuses)
    assert exit_statuses == [HUNG] == [75]
    stacks = (tmp_path / "stacks.txt").read_text()
    assert (
        "thread MainThread:" in stacks
        and "thread watchdog:" in stacks
        and "in test_a_hang_is_reported" in stacks
    )
    errors = capfd.readouterr().err
    assert (
        stacks in errors
        and "error: hung: 'step' has lasted 0 s; its limit is watchdog.step=0.05. The stacks"
        in errors
    )


def test_restarted_parts_and_parts_without_a_limit_do_not_time_out(exit_statuses, tmp_path):
    with Watchdog(Limits(evaluate=0.3), tmp_path / "stacks.txt") as watching:
        with Ledger(
            None, time.time(), 0, watching.enter_phase
        ) as ledger:  # it names each part that starts
            for _ in range(60):
                ledger.enter_phase("evaluate")
                time.sleep(0.01)
            with ledger.time_phase("compile"):
                time.sleep(0.5)
                assert watching.current[0] == "compile"
        assert not exit_statuses


def test_time_in_which_nothing_ran_is_not_counted(exit_statuses, tmp_path, monkeypatch):
    """After a suspended process or a laptop's sleep, the clock has jumped by hours between two
    checks.
    """
    real, jumps = time.monotonic, []
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: real() + 3600 * len(jumps))
    with Watchdog(Limits(step=60), tmp_path / "stacks.txt") as watching:
        watching.enter_phase("step")
        for _ in range(5):
            time.sleep(0.03)
            jumps.append(1)
        time.sleep(0.05)
        assert not exit_statuses


def test_a_save_in_the_background_is_watched_while_the_loop_goes_on(exit_statuses, tmp_path):
    over = threading.Event()
    saving = threading.Thread(target=over.wait, name=watchdog.SAVE_THREAD)
    with Watchdog(Limits(save=0.1), tmp_path / "stacks.txt") as watching:
        saving.start()
        end = time.monotonic() + 5
        while not exit_statuses and time.monotonic() < end:
            watching.enter_phase("step")
            time.sleep(0.01)
    over.set()
    saving.join()
    assert exit_statuses == [HUNG]


def test_a_hung_disk_or_process_does_not_delay_the_exit(exit_statuses, capfd):
    class Hanging:
        write_text = staticmethod(lambda text: threading.Event().wait(5))

    began = time.monotonic()
    peers = make_peers(leave=lambda: threading.Event().wait(5))
    with Watchdog(Limits(step=0.01), Hanging(), peers) as watching:
        watching.enter_phase("step")
        wait_until(lambda: exit_statuses)
    assert time.monotonic() - began < 3 and "error: hung: 'step'" in capfd.readouterr().err


def test_a_hang_is_announced_to_the_other_processes(exit_statuses, tmp_path):
    announced = []
    peers = make_peers(announce=announced.append)
    with Watchdog(Limits(step=0.05), tmp_path / "stacks.txt", peers) as watching:
        watching.enter_phase("step")
        wait_until(lambda: exit_statuses)
    assert announced == ["'step' has lasted 0 s; its limit is watchdog.step=0.05"]


def test_the_hang_of_another_process_ends_this_one_with_its_stacks(
    exit_statuses, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(watchdog, "PEER_TICK", 0.01)
    announced = []
    peers = make_peers(announced.append, find_hung=lambda: "'data' has lasted 9 s, in process 1")
    with Watchdog(Limits(), tmp_path / "stacks.txt", peers):
        wait_until(lambda: exit_statuses)
    assert exit_statuses == [HUNG] and not announced
    errors = capfd.readouterr().err
    assert "error: hung: 'data' has lasted 9 s, in process 1. The stacks" in errors
    assert "thread MainThread:" in (tmp_path / "stacks.txt").read_text()


def test_a_coordinator_that_does_not_answer_neither_ends_nor_delays_a_process(
    exit_statuses, tmp_path, monkeypatch
):
    monkeypatch.setattr(watchdog, "PEER_TICK", 0.01)
    asked, answer = threading.Event(), threading.Event()

    def find_hung():
        asked.set()
        answer.wait(20)
        return ""

    began = time.monotonic()
    with Watchdog(Limits(step=0.05), tmp_path / "stacks.txt", make_peers(find_hung=find_hung)):
        assert asked.wait(10)
    assert time.monotonic() - began < 5 and not exit_statuses
    with Watchdog(
        Limits(step=0.05), tmp_path / "stacks.txt", make_peers(find_hung=find_hung)
    ) as watching:
        watching.enter_phase("step")
        wait_until(lambda: exit_statuses)
    answer.set()
    assert exit_statuses == [HUNG]


def test_limits_are_fields_of_a_run():
    assert load("bert_tiny", ["watchdog.step=60"]).watchdog == Limits(step=60.0)
    with pytest.raises(ConfigError, match="Limits.save is -1.0; it must be at least 0"):
        load("bert_tiny", ["watchdog.save=-1"])


def test_a_leftover_thread_does_not_delay_the_exit():
    code = (
        "import sys, threading\nfrom pretrain.processes import watchdog\nwatchdog.EXIT_LIMIT = 0.2\n"
        "threading.Thread(target=threading.Event().wait).start()\nwatchdog.exit_soon(3)\nsys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 3
