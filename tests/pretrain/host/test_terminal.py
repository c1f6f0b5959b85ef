"""Text goes to the terminal with its control characters escaped; the program's own drawing does
not.
"""

import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pretrain.__main__ import main
from pretrain.host.console import make_console
from pretrain.host.lost_output import GuardedStream
from pretrain.host.terminal import (
    ERASE_LINE,
    NOTEBOOK_WIDTH,
    EscapingStream,
    erase_line,
    escape,
    escape_line,
    escape_output,
    get_raw_stream,
)
from pretrain.workdir.metrics_file import ProgressLine

pytestmark = pytest.mark.fast
HOSTILE = {
    "ESC": "\x1b[31m",
    "OSC": "\x1b]0;title\x07",
    "CSI of one character": "\x9b2J",
    "DEL": "\x7f",
    "NUL": "\0",
    "carriage return": "\r",
    "backspace": "\b",
    "override": "\u202e",
    "isolate": "\u2066",
    "invisible": "\u200b\ufeff",
    "tag": "\U000e0041",
    "separator": "\u2028",
    "byte of a file name": "\udcff",
}


class FakeTerminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_characters_are_shown(name):
    shown = escape(f"a{HOSTILE[name]}b")
    assert shown.isprintable() and shown[0] == "a" and shown[-1] == "b" and "\\u" in shown
    assert escape(shown) == shown


def test_text_stays_readable():
    text = "line\n\tindented: naïve, 数学, 👩‍👩‍👧, می‌خواهم, שלום\u200e!, C:\\new, ﷺ, ½"
    assert escape(text) == text
    assert escape_line("a\nb\tc") == "a\\nb\tc"


@given(some.text() | some.text("\x1b\x9b\u202e\U000e0041\ud800 a\n"))
def test_any_text_is_free_of_control_characters_and_the_same_in_json(text):
    shown = escape(text)
    shown.encode()  # any stream can write it
    assert all(
        sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cs", "Zl", "Zp")
        for sign in shown
    )
    line = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(escape(line)) == json.loads(line)


def test_a_stream_escapes_what_any_library_writes(monkeypatch):
    below = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", below)
    before = escape_output()
    try:
        print("a\x1b[31m", "b", sep="\x9b", file=sys.stderr)
        sys.stderr.writelines(["c\r", "d\n"])
        assert sys.stderr.isatty() and before[1] is below
        again = escape_output()
        assert again[1] is sys.stderr and get_raw_stream(sys.stderr) is below  # once, not twice
        erase_line(sys.stderr)
    finally:
        sys.stdout, sys.stderr = before
    assert below.getvalue() == "a\\u001b[31m\\u009bb\nc\\u000dd\n" + ERASE_LINE


def test_a_notebook_redraws_a_line_without_control_sequences():
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    line = ProgressLine(0, 3, 1.0, None, out=EscapingStream(stream), seconds=0)
    line.seconds = 0
    for step in (1, 2):
        row = {"step": step, "loss": 2.5, "learning_rate": 1e-3, "tokens_per_second": 9.0}
        line.show_row(row | {"seconds": 1.0})
    line.print_line("held out")
    line.close()
    shown = stream.getvalue()
    assert "\x1b" not in shown and shown.endswith("\rheld out\n")
    # Each carriage return, blanks and carriage return clear a line that was longer than the next.
    assert [part.strip()[:8] for part in shown.split("\r")] == [
        "",
        "",
        "step 1/3",
        "",
        "step 2/3",
        "",
        "held out",
    ]
    assert all(len(part) < NOTEBOOK_WIDTH for part in shown.split("\r")[2::2])


def test_a_console_shows_markup_as_text_and_keeps_its_own_colours(monkeypatch):
    from rich.table import Table
    from rich.text import Text

    below = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", EscapingStream(below))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    console = make_console()
    console.print("[red]no markup[/red] :smile: \x1b[2J", style="green")
    table = Table("check", "observed")
    table.add_row("label\x1b[31m", "[bold]\x9bK")
    console.print(table)
    console.print(Text("styled \x1b]0;x").append("more", style="bold"))
    shown = below.getvalue()
    assert "\x1b[32m[red]no markup[/red] :smile: \\u001b[2J" in shown
    assert "label\\u001b[31m" in shown and "[bold]\\u009bK" in shown
    assert "styled \\u001b]0;x" in shown and "\x1b[1mmore" in shown
    assert "\x1b[2J" not in shown and "\x9b" not in shown and "\x1b]" not in shown


def test_an_error_is_one_escaped_line(capsys, tmp_path):
    path = tmp_path / "no\x1b[31msuch\nerror: forged\x9b"
    assert main(["describe", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no\\u001b[31msuch\\nerror: forged\\u009b" in line.replace("\\\\", "\\").replace(
        "\\x", "\\u00"
    )
    assert main(["tr\x1b[31mai\nn"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", [EscapingStream, GuardedStream])
def test_a_stream_can_be_looked_at_before_it_is_made(kind):
    made = kind.__new__(kind)  # as a profiler sees `self` in `__init__`
    assert not hasattr(made, "shape")
    made.stream = io.StringIO()
    assert hasattr(made, "getvalue")
