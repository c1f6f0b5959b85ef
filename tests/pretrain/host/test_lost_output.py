"""A stream that fails is dropped once, by whatever it fails, and the note names it."""

import errno
import io
import sys

import pytest

from pretrain.cli.verbs import is_result_printed
from pretrain.host import lost_output
from pretrain.host.console import make_console
from pretrain.host.lost_output import GuardedStream, drop_failed_output, guard_output, note_losses
from pretrain.host.terminal import escape_output, is_redrawable

pytestmark = pytest.mark.fast


class FailingStream(io.StringIO):
    """A stream whose writes or flushes raise an error."""

    def __init__(self, error, method="write"):
        super().__init__()
        self.error, self.method, self.calls = error, method, 0

    def write(self, text):
        self.calls += 1
        if self.method == "write":
            raise self.error
        return super().write(text)

    def flush(self):
        if self.method == "flush":
            raise self.error


@pytest.fixture(autouse=True)
def losses(monkeypatch):
    found = []
    monkeypatch.setattr(lost_output, "_losses", found)
    return found


@pytest.mark.parametrize("method", ["write", "flush"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (ValueError("I/O operation on closed file"), "I/O operation on closed file"),
    ],
)
def test_a_failure_drops_the_stream_once(losses, capsys, method, error, reason):
    below = FailingStream(error, method)
    stream = GuardedStream(below, "standard output")
    for _ in range(3):
        assert stream.write("text\n") == 5
        stream.writelines(["more\n"])
        stream.flush()
    assert [(one.stream, one.reason) for one in losses] == [("standard output", reason)]
    assert below.calls == (1 if method == "write" else 2)
    assert f"standard output is lost ({reason})" in capsys.readouterr().err


def test_a_slow_reader_misses_text_and_keeps_the_stream(losses):
    below = FailingStream(BlockingIOError(errno.EAGAIN, "unavailable"))
    stream = GuardedStream(below, "standard error")
    stream.write("lost")
    below.method = ""
    stream.write("read")
    assert below.getvalue() == "read" and not losses


def test_what_an_encoding_lacks_is_escaped(losses):
    raw = io.BytesIO()
    stream = GuardedStream(io.TextIOWrapper(raw, encoding="ascii"), "standard output")
    stream.write("naïve\n")
    stream.flush()
    assert raw.getvalue() == b"na\\xefve\n" and not losses


def test_what_the_program_draws_is_dropped_too(losses, monkeypatch):
    """Consoles write past the stream that escapes; both are guarded once, and restored."""
    below = FailingStream(OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(sys, "stderr", below)
    before = guard_output()
    try:
        escape_output()
        assert guard_output()[1] is sys.stderr
        guarded = sys.stderr
        with drop_failed_output():
            assert sys.stderr is guarded
            make_console(stderr=True).print("drawn")
        print("text", file=sys.stderr)
    finally:
        sys.stdout, sys.stderr = before
    assert sys.stderr is below and len(losses) == 1
    with drop_failed_output():  # of a training in Python, whose caller has not guarded it
        print("text", file=sys.stderr)
        assert len(losses) == 2
    assert sys.stderr is below and len(losses) == 1


def test_a_notebook_is_one_below_the_guard():
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    assert is_redrawable(GuardedStream(stream, "standard error"))
    assert not is_redrawable(GuardedStream(io.StringIO(), "standard error"))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("", True),
        ("--help", True),
        ("trian x", True),
        ("predict --workdir w", True),
        ("describe bert", True),
        ("predict --workdir w --output f", False),
        ("plan bert --output=f", False),
        ("train bert --workdir w", False),
        ("prepare x --output s", False),
        ("local 2 evaluate", False),
        ("pod watch", False),
    ],
)
def test_what_is_printed_is_the_result_of_some_commands(words, printed):
    assert is_result_printed(words.split()) == printed


def test_the_note_grows_by_what_is_new(tmp_path):
    for number, error in enumerate((OSError(errno.EIO, "first"), OSError(errno.EIO, "second")), 1):
        stream = GuardedStream(FailingStream(error), "standard error")
        assert note_losses(tmp_path, 3, 10 * number, number - 1) == number - 1
        stream.write("text")
        assert note_losses(tmp_path, 3, 10 * number, number - 1) == number
    lines = (tmp_path / "lost_output-3.txt").read_text().splitlines()
    assert [line[20:] for line in lines] == [
        "after step 10: standard error is lost (first); the run goes on without it",
        "after step 20: standard error is lost (second); the run goes on without it",
    ]
