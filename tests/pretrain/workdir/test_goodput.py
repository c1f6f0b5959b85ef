"""The parts of the ledger add up to the wall clock, however a run was interrupted."""

import json
import shutil
import time

import pytest

from pretrain.workdir import goodput
from pretrain.workdir.goodput import Ledger, read_ledger


class Clock:
    """Replaces `time`; moves only when a test moves it."""

    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.now - 500.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(goodput, "time", clock)
    return clock


def spend_seconds(clock, ledger, **seconds):
    for part, length in seconds.items():
        with ledger.time_phase(part):
            clock.now += length


def open_ledger(workdir, step, start_time):
    ledger = Ledger(workdir, start_time, step)
    ledger.every = 1e6  # seconds of the true clock: the thread writes nothing
    return ledger


def read_parts(workdir):
    return {
        part: seconds
        for part, seconds in read_ledger(workdir / goodput.NAME)["seconds"].items()
        if seconds
    }


def test_parts_add_up_over_a_kill_a_stop_and_a_step_back(clock, tmp_path):
    with open_ledger(tmp_path, 0, start_time=990.0) as ledger:
        spend_seconds(clock, ledger, compile=7, data=1, step=20, evaluate=4, save=2)
        ledger.mark_checkpoint(4, [4])
        spend_seconds(clock, ledger, data=1, step=5, save=3)
        ledger._write_file()  # as its thread does just before the process is killed
        assert read_ledger(tmp_path / goodput.NAME)["ended"] is False
        killed = (tmp_path / goodput.NAME).read_text()
    (tmp_path / goodput.NAME).write_text(killed)
    clock.now += 60
    with open_ledger(tmp_path, 4, start_time=clock.now - 2) as ledger:
        ledger.enter_phase("step")
        assert ledger.seconds == dict(
            start=12, compile=7, data=1, step=20, save=2, evaluate=4, lost=9, down=58
        )
        spend_seconds(clock, ledger, compile=6, step=10)
        with ledger.time_phase("start"):
            clock.now += 1
            ledger.roll_back(0)  # the guard finds only the first checkpoint
        spend_seconds(clock, ledger, step=30)
        ledger.mark_checkpoint(12, [12])
    ledger_record = read_ledger(tmp_path / goodput.NAME)
    assert read_parts(tmp_path) == dict(start=13, compile=13, step=30, lost=46, down=58)
    assert (
        sum(ledger_record["seconds"].values()) == clock.now - 990
        and ledger_record["ended"]
        and ledger_record["starts"] == 2
    )
    clock.now += 1e6  # nobody was waiting for it
    with open_ledger(tmp_path, 12, start_time=clock.now):
        pass
    assert read_parts(tmp_path) == dict(start=13, compile=13, step=30, lost=46, down=58)
    ledger_record = read_ledger(tmp_path / goodput.NAME)
    assert (
        goodput.format_goodput(ledger_record["seconds"], ledger_record["starts"])
        == "goodput 29.4% of 102.0 s in 3 starts: start 13.0, compile 13.0, step 30.0, lost 46.0, down 58.0"
    )


def test_lost_time_is_counted_from_the_remaining_checkpoint(clock, tmp_path):
    ledger = open_ledger(tmp_path, 0, start_time=clock.now)
    for step in (1, 2, 3):
        spend_seconds(clock, ledger, step=10)
        ledger.mark_checkpoint(step, [1, step])  # 1 is pinned
    assert sorted(ledger.marks) == [1, 3]  # of the existing checkpoints
    ledger.roll_back(2)
    assert (ledger.seconds["step"], ledger.seconds["lost"], sorted(ledger.marks)) == (10, 20, [1])


WHOLE = {"starts": 1, "until": 1.0, "ended": False, "seconds": dict.fromkeys(goodput.PHASES, 0.0)}
DAMAGED = [
    {"until": None}, {"starts": "1"}, {"marks": {"1": {}}}, {"marks": {"x": {}}}, {"marks": 3},
]  # fmt: skip
DAMAGED += [{"until": float("nan")}, {"seconds": dict.fromkeys(goodput.PHASES)}]


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_a_ledger_with_a_wrong_value_starts_again(clock, tmp_path, capsys, damage):
    (tmp_path / goodput.NAME).write_text(json.dumps({**WHOLE, "marks": {}, **damage}))
    with open_ledger(tmp_path, 3, start_time=clock.now - 5):
        pass
    assert read_parts(tmp_path) == {"start": 5}
    assert "a new ledger is started" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": {}}', '{"starts": 1'])
def test_an_unreadable_ledger_starts_again(clock, tmp_path, capsys, text):
    (tmp_path / goodput.NAME).write_text(text)
    with open_ledger(tmp_path, 3, start_time=clock.now - 5):
        pass
    assert (
        read_parts(tmp_path) == {"start": 5}
        and "a new ledger is started" in capsys.readouterr().out
    )


def test_a_ledger_that_cannot_be_written_is_reported_at_the_next_save(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path, goodput.time.time(), 0)
    ledger.every = 0.001
    monkeypatch.setattr(ledger, "_write_file", raise_disk_full)
    ledger._write_periodically()
    with pytest.raises(OSError, match="disk full"):
        ledger.mark_checkpoint(1, [])


def raise_disk_full(ended=False):
    raise OSError("disk full")


def test_a_live_run_writes_its_ledger_each_second(tmp_path):
    """After a kill, at most the time since the last write is estimated."""
    ledger = Ledger(tmp_path, goodput.time.time(), 0)
    assert ledger.every == 1.0
    ledger.every = 0.01
    with ledger:
        for _ in range(500):
            if read_ledger(tmp_path / goodput.NAME)["seconds"]["start"] > 0.02:
                break
            ledger.stopped.wait(0.01)
        else:
            raise AssertionError("the ledger was not written by itself")
    assert not ledger.thread.is_alive()


def test_a_ledger_that_cannot_be_written_names_its_file(tmp_path):
    """The system's own error for a full disk names no file; here the folder is missing."""
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="run/goodput.json"), Ledger(tmp_path / "run", time.time(), 0):
        shutil.rmtree(tmp_path / "run")


def test_an_error_of_the_run_is_not_replaced_by_one_of_the_ledger(tmp_path, capsys):
    def fail(folder):
        with Ledger(folder, time.time(), 0):
            shutil.rmtree(folder)
            raise ValueError("the run's own")

    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="the run's own"):
        fail(tmp_path / "run")
    assert "not written as the run ended: " in capsys.readouterr().err


def test_the_time_in_a_phase_within_another_is_a_part(clock, tmp_path):
    with open_ledger(tmp_path, 0, start_time=1000.0) as ledger:
        ledger.enter_phase("step")
        for seconds in (3, 4):
            with ledger.time_phase("data"):
                clock.now += seconds
            clock.now += 10 * seconds
    assert read_parts(tmp_path) == {"data": 7, "step": 70}
