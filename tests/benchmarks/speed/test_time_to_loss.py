"""Two programs take turns; a program that waits is paused, and its clock too."""

import os
import signal
import sys
import threading
import time

import pytest

from benchmarks.program_turns import ProgramTurn, take_turns
from benchmarks.speed.time_to_loss import find_first, format_columns, format_rows

REPORTING_PROGRAM = """
import json, sys, time
for step in range(1, 400):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps({"step": step} | ({"heldout_loss": 6 - step / 100} if step % 5 == 0 else {})) + "\\n")
    time.sleep(0.01)
"""


@pytest.fixture
def make_turn(tmp_path):
    """Return turn(program), which logs to a file in tmp_path."""
    begun = []

    def start_turn(program):
        page = tmp_path / "told.jsonl"
        begun.append(
            ProgramTurn(
                [sys.executable, "-c", program, page], page, "heldout_loss", {}, tmp_path / "log"
            )
        )
        return begun[-1]

    yield start_turn
    for each in begun:
        each.end_process()


def test_a_program_runs_in_its_turns_only(make_turn, tmp_path):
    one = make_turn(REPORTING_PROGRAM)
    while not one.scores:
        assert one.run_slice(0.3)
    time.sleep(0.2)  # until a pending write is complete
    size, clock = (tmp_path / "told.jsonl").stat().st_size, one.clock
    time.sleep(0.3)
    assert (tmp_path / "told.jsonl").stat().st_size == size and one.clock == clock
    began = time.monotonic()
    assert one.run_slice(0.3) and 0.3 <= one.clock - clock <= time.monotonic() - began
    assert [step for _, step, _ in one.scores] == list(range(5, 5 * len(one.scores) + 1, 5))
    assert all(0 < now <= one.clock for now, _, _ in one.scores)


def test_programs_take_turns_until_their_own_limit(make_turn, capfd):
    starts = {name: lambda: make_turn(REPORTING_PROGRAM) for name in ("one", "two")}
    scores = take_turns(starts, limit=0.6, seconds=0.25)
    assert all(losses and losses[-1][0] <= 0.75 for losses in scores.values())
    turns = [line.split(":")[0] for line in capfd.readouterr().err.splitlines()]
    assert turns[:4] == ["one", "two", "one", "two"]


def test_a_signal_that_ends_the_benchmark_ends_its_programs(make_turn, capfd):
    turns = []
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))

    def start_turn():
        turns.append(make_turn(REPORTING_PROGRAM))
        if len(turns) == 2:
            timer.start()
        return turns[-1]

    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # pytest would end
    try:
        with pytest.raises(SystemExit) as ended:
            take_turns({"one": start_turn, "two": start_turn}, limit=30.0, seconds=0.1)
    finally:
        timer.cancel()
        restored = signal.signal(signal.SIGTERM, handler)
    assert ended.value.code == 128 + signal.SIGTERM
    assert all(turn.process.returncode is not None for turn in turns) and len(turns) == 2
    assert callable(restored) and restored.__name__ == "<lambda>"


def test_a_failed_program_reports_its_error(make_turn):
    one = make_turn("import sys; print('no such thing', file=sys.stderr); sys.exit(3)")
    with pytest.raises(RuntimeError, match="(?s)status 3.*no such thing"):
        all(one.run_slice(0.5) for _ in range(100))


def test_a_row_for_each_loss_that_was_reached():
    curves = {
        "cloze": [(10.0, 100, 5.9), (20.0, 200, 5.4), (30.0, 300, 5.6)],
        "trainer": [(40.0, 100, 5.8)],
    }
    assert (
        find_first(curves["cloze"], 5.5) == (20.0, 200)
        and find_first(curves["trainer"], 5.5) is None
    )
    assert list(format_rows(curves, [6.0, 5.5, 5.0])) == [
        "| 6.00 | 10 (100) | 40 (100) | 4.00 |",
        "| 5.50 | 20 (200) | not reached | - |",
    ]


def test_ratios_of_those_that_were_run():
    curves = {
        way: [(10.0 * i, 100, 5.0)]
        for i, way in enumerate(["cloze_bf16", "trainer", "trainer_bf16"], 1)
    }
    assert format_columns(curves)[4:] == ["trainer_bf16 / cloze_bf16", "trainer / cloze_bf16"]
    assert list(format_rows(curves, [5.5])) == [
        "| 5.50 | 10 (100) | 20 (100) | 30 (100) | 3.00 | 2.00 |"
    ]
