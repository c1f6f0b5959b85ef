"""The pages fit a phone's screen: nothing is wider than it, whatever a run or a text is called. Needs Chromium, by $CHROMIUM or on the path."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from pretrain import environment, samples
from pretrain.attention_maps import Panel, Token, as_data
from pretrain.config import Mesh
from pretrain.goodput import PARTS
from pretrain.page import page
from pretrain.report import report
from pretrain.sharding import make_mesh

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
WIDTH = 390  # CSS pixels
LONG = "an_argument_without_any_place_to_break_it_" * 3
# What stands beyond the right edge, unless it scrolls by itself. The page is made narrow: a window may be wider than was asked for.
MEASURE = f"""<script>
addEventListener("load", () => {{
  document.documentElement.style.width = "{WIDTH}px";
  const scrolls = one => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter(one => !scrolls(one.parentElement) && one.getBoundingClientRect().right > {WIDTH} + 1);
  document.body.dataset.told = JSON.stringify(wide.map(one => `${{one.tagName}} ${{one.id}} ${{one.textContent.slice(0, 60)}}`));
}});
</script>"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """measured(text): what is too wide on a page that is as wide as a phone."""
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not chromium:
        pytest.skip("no Chromium: $CHROMIUM names one")
    folder = tmp_path_factory.mktemp("chromium")

    def measure(text):
        (folder / "page.html").write_text(text.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
        how = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},844"]
        done = subprocess.run([chromium, *how, "--dump-dom", f"file://{folder / 'page.html'}"], capture_output=True, text=True, timeout=240)
        found = re.search(r'data-told="([^"]*)"', done.stdout)
        assert found, done.stderr
        return json.loads(found[1].replace("&quot;", '"'))

    return measure


def run(workdir, count):
    """The files of a run with whatever a page shows."""
    workdir.mkdir(parents=True)
    row = {"loss": 9.0, "gradient_norm": 1e-7, "learning_rate": 0.1, "tokens": 123456.0, "seconds": 2.0, "tokens_per_second": 61728.0, LONG: 1.0}
    rows = [row | {"step": n, "loss": 9 / n} | ({"heldout_loss": 8 / n, f"heldout_{LONG}": 0.5} if n % 10 == 0 else {}) for n in range(1, count + 1)]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workdir / "config.json").write_text(json.dumps({"train": {"steps": count, LONG: LONG}, "store": f"/{LONG}/{count}"}))
    seconds = {part: 12345.678 for part in PARTS}
    (workdir / "goodput.json").write_text(json.dumps({"starts": 2, "until": 0.0, "ended": True, "seconds": seconds, "marks": {}}))
    environment.note(workdir, 0, make_mesh(Mesh(-1)), 1, 1e12, 1e13)
    for step in (10, 20):
        gaps = [{"right": LONG, "told": "…s", "probability": 0.12}] * 8
        samples.write(workdir / samples.NAME, {"step": step, "samples": [{"text": ["A", LONG, *["and so on"] * 6, "…s."], "gaps": gaps}]})


def test_the_report_of_two_runs(measured, tmp_path):
    run(tmp_path / "a" / LONG, 40)
    run(tmp_path / "b" / LONG, 20)
    (path,) = report([tmp_path / "a" / LONG, tmp_path / "b" / LONG], tmp_path / "out", pictures=False)
    wide = measured(path.read_text(encoding="utf-8"))
    assert wide == []


def test_the_attention_of_many_heads(measured):
    tokens = [*(Token(f"word{n}", False) for n in range(60)), Token(LONG, False)]
    panel = Panel("encoder", tokens, tokens, np.full((2, 16, 61, 61), 1 / 61))
    wide = measured(page("attention", as_data(LONG, [("in:1", LONG, None)], [[panel]])))
    assert wide == []
