"""Progress is shown on a terminal only, and no line of it remains there or in a file."""

import io
import sys

import pytest

from pretrain.host.terminal import ERASE_LINE as ERASE
from pretrain.inference import progress
from pretrain.inference.batching import make_batches, report_progress
from pretrain.inference.progress import Progress

pytestmark = pytest.mark.fast


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_batches_report_their_progress():
    shares = []
    with report_progress(shares.append):
        assert (
            list(make_batches([2, 1, 2, 1, 2, 2], 3)) == [[1, 3], [0, 2, 4], [5]]
            and list(make_batches([], 3)) == []
        )
    assert shares == pytest.approx([0, 2 / 6, 5 / 6, 1, 1])
    list(make_batches([1], 1))
    assert len(shares) == 5


def test_a_line_on_a_terminal_alone(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    now = 100.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    with Progress(lambda: 9000) as line:
        line.show(0)
        now += 0.1
        line.show(1)  # too early
        now += 1.9
        line.show(3000.5)
        line.hide()
        now += 98
        line.show(6000)
    expected = (
        "0/9,000 texts",
        "3,000/9,000 texts  1,500 texts/s  0:04 left",
        ERASE,
        "6,000/9,000 texts  60 texts/s  0:50 left",
        ERASE,
    )
    assert sys.stderr.getvalue() == "".join(
        text if text == ERASE else ERASE + text for text in expected
    )
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress(lambda: pytest.fail("counted for nobody")) as line:
        line.show(3)
    assert sys.stderr.getvalue() == ""
