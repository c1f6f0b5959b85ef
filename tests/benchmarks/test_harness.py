"""Shared code of the benchmarks: arguments are checked, errors are one line, and a section states
how it was measured.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.harness import (
    ROOT,
    Worker,
    duration,
    format_command,
    format_spread,
    int_at_least,
    int_between,
    report_errors,
    some_of,
)
from benchmarks.peer_environment import find_peers_python

pytestmark = pytest.mark.fast


def make_parser():
    made = argparse.ArgumentParser()
    made.add_argument("--rounds", type=int_at_least(1))
    made.add_argument("--folds", type=int_between(1, 10))
    made.add_argument("--seconds", type=duration)
    made.add_argument("--ways", type=some_of({"one": 1, "other": 2}))
    made.add_argument("--peers", type=some_of(("one", "other"), min_names=0))
    return made


def test_arguments_are_read():
    words = "--rounds 3 --folds 7 --seconds 0.5 --ways other,one,other --peers="
    args = make_parser().parse_args(words.split())
    expected = {"rounds": 3, "seconds": 0.5, "ways": ["other", "one"], "peers": []}
    assert vars(args) == expected | {"folds": 7}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rounds 0", "--rounds: 0 is less than 1"),
        ("--rounds few", "--rounds: invalid integer value: 'few'"),
        ("--folds 0", "--folds: 0 is not from 1 to 10"),
        ("--folds 11", "--folds: 11 is not from 1 to 10"),
        ("--seconds 0", "--seconds: 0 is not above 0"),
        ("--seconds nan", "--seconds: nan is not above 0"),
        ("--ways one,oter", "--ways: unknown: oter; allowed: one, other"),
        ("--ways ,", "--ways: no name is given; allowed: one, other"),
    ],
)
def test_a_wrong_argument_is_reported(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        make_parser().parse_args(words.split())
    assert message in capsys.readouterr().err


def test_an_error_of_a_store_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("CLOZE_TRACEBACK", raising=False)
    with pytest.raises(SystemExit, match="2"), report_errors(make_parser()):
        raise FileNotFoundError("no store here")
    assert capsys.readouterr().err.endswith("error: no store here\n")
    with pytest.raises(KeyError), report_errors(make_parser()):
        raise KeyError("a fault of the program's own")
    monkeypatch.setenv("CLOZE_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError), report_errors(make_parser()):
        raise FileNotFoundError("no store here")


def test_an_error_in_a_worker_is_not_replaced_when_its_pipe_is_closed():
    worker = Worker([sys.executable, "-c", "raise SystemExit(3)"])
    worker.process.wait()
    with pytest.raises(RuntimeError, match="ended with status 3"), worker:
        worker.ask_worker(text="a message that is in the buffer")


@pytest.mark.parametrize(
    "words",
    ["speed.startup --store {none}", "speed.startup --store {none} --config bert_tniy", "speed.time_to_loss --store {none}", "speed.time_to_loss --store {none} data.batch_sise=3",
     "speed.input --store {none}", "speed.hosts input --store {none}", "speed.packing --corpus {none}", "speed.decode --written 1", "speed.step --ways tunde", "speed.step --types float16",
     "speed.step --cases bert_large", "speed.step --rounds 0", "speed.growth --steps 0", "speed.collate --rounds 0", "speed.time_to_loss --slice 0"],
)  # fmt: skip
@pytest.mark.slow
def test_a_program_with_wrong_arguments_reports_it_and_writes_nothing(words, tmp_path):
    name, *rest = words.format(none=tmp_path / "none").split()
    before = {path: path.stat().st_size for path in (ROOT / "benchmarks" / "results").rglob("*")}
    environment = {key: value for key, value in os.environ.items() if key != "CLOZE_TRACEBACK"}
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *rest],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert (
        "Traceback" not in done.stderr
        and f"{name.split('.')[1]}.py: error: " in done.stderr.splitlines()[-1]
    )
    assert before == {
        path: path.stat().st_size for path in (ROOT / "benchmarks" / "results").rglob("*")
    }


SHOWS = "import sys; sys.path.insert(0, {root!r}); from benchmarks.harness import format_command; print(format_command())"


def test_a_command_is_spelt_as_it_was_given(tmp_path, monkeypatch):
    words = ["--cases", "bert mini", "model.depth=2"]
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "speed" / "decode.py"), *words])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert format_command() == "python benchmarks/speed/decode.py --cases 'bert mini' model.depth=2"
    (tmp_path / "shows.py").write_text(SHOWS.format(root=str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "shows", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "python -m shows --cases 'bert mini' model.depth=2\n"


def test_a_cell_has_the_median_the_minimum_and_the_maximum():
    assert format_spread(np.array([1010.0, 899.0, 952.0])) == "952 (899 to 1,010)"
    assert format_spread([1.25, 1.5], ".2f") == "1.38 (1.25 to 1.50)"


def test_the_peers_python_may_be_named(monkeypatch):
    monkeypatch.setenv("CLOZE_PEERS_PYTHON", sys.executable)
    assert find_peers_python() == pathlib.Path(sys.executable)
    monkeypatch.setenv("CLOZE_PEERS_PYTHON", "no/such/python")
    with pytest.raises(FileNotFoundError, match="CLOZE_PEERS_PYTHON is no/such/python"):
        find_peers_python()
