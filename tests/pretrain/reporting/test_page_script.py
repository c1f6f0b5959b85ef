"""The functions of a page's script, called without a browser.

Needs Node.js.
"""

import json
import shutil
import subprocess

import pytest

from pretrain.reporting.html import TEMPLATES

pytestmark = pytest.mark.slow


def call_ticks(low, high):
    """Return the marks of an axis, in a process that has ten seconds."""
    node = shutil.which("node")
    if not node:
        pytest.skip("needs Node.js")
    page = (TEMPLATES / "report.html").read_text(encoding="utf-8")
    functions = page[page.index("function ticks(") : page.index("function decades(")]
    script = f"{functions}; console.log(JSON.stringify(ticks({low}, {high})));"
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr[-500:]
    return json.loads(done.stdout)


def test_an_axis_has_few_marks():
    assert call_ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert call_ticks(5, 5) == [5]


def test_steps_that_no_float_distinguishes_do_not_stop_the_page():
    """Steps are bounded by int64 alone; above 2^53 a float plus 1 may be the same float."""
    assert len(call_ticks(10**18, 10**18 + 128)) <= 20
