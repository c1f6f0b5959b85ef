"""The pages in a browser: they fit a phone's screen, whatever a run or a text is called, and show
the data that they were given.

Needs Chromium, by $CHROMIUM or on the path.
"""

import html
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from pretrain.config import Mesh
from pretrain.inference.attention_maps import Panel, Token, make_page_data
from pretrain.mesh.sharding import make_mesh
from pretrain.reporting.html import render_html
from pretrain.reporting.run_report import write_report
from pretrain.workdir import environment_file, samples_file
from pretrain.workdir.goodput import PHASES
from tests.command import split_words

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
WIDTH, HEIGHT = 390, 2400  # CSS pixels, high enough that a screenshot has the whole page
SOURCE = "my_own_text.txt"
LONG = "an_argument_without_any_place_to_break_it_" * 3
# Before the page's own script: record what it throws and what the page would fetch.
WATCH = """<script>
const thrown = [];
addEventListener("error", event => thrown.push(event.message));
addEventListener("securitypolicyviolation", event => thrown.push(event.violatedDirective));
</script>"""
# Find what extends beyond the right edge, unless it scrolls by itself, then evaluate a test's function.
# The page's width is set because a window may be wider than requested.
MEASURE = f"""<script>
addEventListener("load", () => {{
  document.documentElement.style.width = "{WIDTH}px";
  const scrolls = one => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter(one => !scrolls(one.parentElement) && one.getBoundingClientRect().right > {WIDTH} + 1);
  const told = {{ wide: wide.map(one => `${{one.tagName}} ${{one.id}} ${{one.textContent.slice(0, 60)}}`) }};
  const one = id => document.getElementById(id), all = path => [...document.querySelectorAll(path)];
  const change = (id, name, value) => {{ one(id)[name] = value; one(id).dispatchEvent(new Event("change")); }};
  try {{ told.asked = (() => {{ ASKED }})(); }} catch (error) {{ thrown.push(String(error)); }}
  document.body.dataset.told = JSON.stringify({{ ...told, thrown }});
}});
</script>"""


@pytest.fixture(scope="module")
def measured_page(tmp_path_factory):
    """Return measured(text, asked, picture): what is too wide on a phone, and the result of the
    function body `asked` there.

    Fails if a script throws. picture: file of a screenshot, as PNG.
    """
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not chromium:
        pytest.skip("no Chromium: $CHROMIUM names one")
    folder = tmp_path_factory.mktemp("chromium")

    def measure_page(text, elements, picture=None):
        text = text.replace("<head>", "<head>" + WATCH, 1).replace(
            "</body>", MEASURE.replace("ASKED", elements) + "</body>"
        )
        (folder / "page.html").write_text(text, encoding="utf-8")
        how = split_words(
            "--headless --no-sandbox --disable-gpu --hide-scrollbars",
            f"--user-data-dir={folder / 'profile'} --window-size={WIDTH},{HEIGHT}",
        )
        how += [f"--screenshot={picture}"] if picture else []
        done = subprocess.run(
            [chromium, *how, "--dump-dom", f"file://{folder / 'page.html'}"],
            capture_output=True,
            text=True,
            timeout=240,
        )
        found = re.search(r'data-told="([^"]*)"', done.stdout)
        assert found, done.stderr
        measurement = json.loads(html.unescape(found[1]))
        assert measurement["thrown"] == []
        return measurement["wide"], measurement["asked"]

    return measure_page


def write_run(workdir, count):
    """Write the files of a run with everything that a page shows."""
    workdir.mkdir(parents=True)
    row = {
        "loss": 9.0, "gradient_norm": 1e-7, "learning_rate": 0.1, "tokens": 123456.0,
        "seconds": 2.0, "tokens_per_second": 61728.0, LONG: 1.0,
    }  # fmt: skip
    rows = [
        row
        | {"step": n, "loss": 9 / n}
        | (
            {"heldout_loss": 8 / n, f"heldout_loss/{SOURCE}": 8 / n, f"heldout_{LONG}": 0.5}
            if n % 10 == 0
            else {}
        )
        for n in range(1, count + 1)
    ]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workdir / "config.json").write_text(
        json.dumps({"train": {"steps": count, LONG: LONG}, "store": f"/{LONG}/{count}"})
    )
    seconds = dict.fromkeys(PHASES, 12345.678)
    (workdir / "goodput.json").write_text(
        json.dumps({"starts": 2, "until": 0.0, "ended": True, "seconds": seconds, "marks": {}})
    )
    environment_file.add_start(workdir, 0, make_mesh(Mesh(-1)), 1, 1e12, 1e13)
    for step in (10, 20):
        gaps = [{"target": LONG, "prediction": "…s", "probability": 0.12}] * 8
        samples_file.add_samples(
            workdir / samples_file.NAME,
            {
                "step": step,
                "samples": [{"text": ["A", LONG, *["and so on"] * 6, "…s."], "gaps": gaps}],
            },
        )


def test_the_report_of_two_runs(measured_page, tmp_path):
    write_run(tmp_path / "a" / LONG, 40)
    write_run(tmp_path / "b" / LONG, 20)
    (path,) = write_report(
        [tmp_path / "a" / LONG, tmp_path / "b" / LONG], tmp_path / "out", write_images=False
    )
    look = """
      const look = () => ({
        curves: all(".chart").map(chart => [chart.querySelector("h3").textContent, [...chart.querySelectorAll("path")].map(path => path.getAttribute("d"))]),
        told: one("charts").querySelector(".told").textContent,
        samples: all("#samples output").map(output => output.textContent),
        shown: !one("predictions").hidden,
        names: all("#heldout tr > :first-child").map(name => name.textContent),
        narrow: all("table tr > :first-child").filter(name => name.offsetWidth < 100).length,
      });
      const begin = look();
      change("along", "selectedIndex", 1);
      change("logx", "checked", true);
      for (const slider of all("#samples input")) { slider.value = 0; slider.dispatchEvent(new Event("input")); }
      return [begin, look()];"""
    wide, (begin, after) = measured_page(path.read_text(encoding="utf-8"), look)
    assert wide == []
    curves = dict(begin["curves"])
    assert (
        len(curves) == len(begin["curves"])
        and {"loss (nats)", "learning rate", "tokens/s"} <= curves.keys()
    )
    for paths in curves.values():  # of each run its training and its held-out scores
        assert len(paths) in (2, 4) and all(
            path.startswith("M") and "L" in path and "NaN" not in path for path in paths
        )
    assert len(curves["loss (nats)"]) == 4 and len(curves["learning rate"]) == 2
    assert begin["told"].startswith("steps 40: ") and after["told"].startswith("tokens 4.938M: ")
    # The run that has ended keeps its last values in the caption.
    name = f"b/{LONG}, training 0.45\xa0(at\xa020)"
    assert begin["told"].count("training ") == begin["told"].count("held out ") == 2
    assert name in begin["told"] and begin["told"].count("(at") == 2
    assert begin["shown"] and f"loss/{SOURCE}" in begin["names"] and not begin["narrow"]
    assert all(
        before != now
        for (_, before), (_, now) in zip(begin["curves"], after["curves"], strict=True)
    )
    assert begin["samples"] == ["step 20"] * 2 and after["samples"] == ["step 10"] * 2


@pytest.mark.parametrize("at_step", [1, 40])
def test_a_curve_of_a_single_point(measured_page, tmp_path, at_step):
    """One row in all; or an evaluation at the end alone, of a score that training does not have."""
    (tmp_path / "w").mkdir()
    rows = [{"step": n, "loss": 9 / n, "tokens": 64.0, "seconds": 2.0} for n in range(1, at_step)]
    rows.append(
        {"step": at_step, "loss": 1.0, "tokens": 64.0, "seconds": 2.0}
        | {"heldout_loss": 2.0, "heldout_squad_f1": 61.0}
    )
    (tmp_path / "w" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (page,) = write_report([tmp_path / "w"], write_images=False)
    look = """
      const look = () => all(".chart").map(chart => [
        chart.querySelector("h3").textContent,
        chart.querySelector(".told").textContent,
        chart.querySelectorAll("circle").length,
        [...chart.querySelectorAll("path")].filter(path => path.getAttribute("d").includes("L")).length]);
      const looks = [look()];
      for (const logarithmic of [false, true]) for (const along of [0, 1, 2]) {
        change("along", "selectedIndex", along);
        change("logx", "checked", logarithmic);
        for (const picture of all(".chart svg")) for (const clientX of [0, 200, 400])
          picture.dispatchEvent(new PointerEvent("pointermove", { clientX }));
        looks.push(look());
      }
      return looks;"""
    wide, (first, *others) = measured_page(page.read_text(encoding="utf-8"), look)
    assert wide == []
    curves = {label: rest for label, *rest in first}
    caption, circles, lines = curves["loss (nats)"]
    assert caption == f"steps {at_step}: training 1 · held out 2"
    assert (circles, lines) == ((2, 0) if at_step == 1 else (1, 1))  # each point or line is seen
    assert curves["squad f1"] == [f"steps {at_step}: held out 61", 1, 0]
    assert all(
        len(look) == len(first) and all(caption for _, caption, *_ in look) for look in others
    )


def test_the_attention_of_many_heads(measured_page, tmp_path):
    """The weights of the selected layer and query are drawn and listed."""
    image = pytest.importorskip("matplotlib.image")
    tokens = [*(Token(f"word{n}", False) for n in range(60)), Token(LONG, False)]
    x_NHLM = np.random.default_rng(0).gumbel(scale=2, size=(2, 16, 61, 61))
    panel = Panel(
        "encoder",
        tokens,
        tokens,
        (np.exp(x_NHLM) / np.exp(x_NHLM).sum(axis=-1, keepdims=True)).astype(np.float32),
    )
    look = """
      dispatchEvent(new Event("resize"));
      const names = id => [...one(id).children].map(name => name.textContent);
      const placed = [...one("rows").children].map(name => name.getBoundingClientRect());
      const apart = placed.every((box, i) => !i || box.top >= placed[i - 1].bottom - 4);
      // A select that may be as wide as it likes is as wide as it is: nothing of its text is cut.
      const cut = all("select").filter(select => { const free = select.cloneNode(true); free.style.maxWidth = "none"; select.parentElement.parentElement.append(free); return free.offsetWidth > select.offsetWidth; });
      const labels = [names("rows"), names("columns"), apart, cut.length];
      all("#picks > select").forEach(free => free.remove());
      const look = () => [one("most").textContent, [...one("map").getContext("2d").getImageData(0, 5, 61, 1).data].filter((_, i) => i % 4 === 3)];
      one("readers").children[5].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
      const begin = look();
      change("layer", "selectedIndex", 1);
      return [labels, all("#all canvas").map(canvas => canvas.title), begin, look()];"""
    wide, ((rows, columns, are_apart, cut), titles, *looks) = measured_page(
        render_html("attention", make_page_data(LONG, [("in:1", LONG, None)], [[panel]])),
        look,
        tmp_path / "p.png",
    )
    assert wide == []
    assert rows == columns and are_apart and not cut
    step = len(tokens) // len(rows) + 1  # of 61 rows every nth has room for its name
    assert 1 < step < 5 and rows == [token.text for token in tokens[::step]]
    assert titles == [f"layer {layer}, head {head}" for layer in (1, 2) for head in range(1, 17)]
    for weights_M, (most, drawn) in zip(panel.weights_NHLM[:, 0, 5], looks, strict=True):
        likeliest = np.argsort(-weights_M)[:4]
        assert most == " · ".join(f"{tokens[m].text} {100 * weights_M[m]:.1f} %" for m in likeliest)
        np.testing.assert_allclose(drawn, 255 * np.sqrt(weights_M), atol=1)
    colours = image.imread(tmp_path / "p.png")[..., :3]
    assert (
        np.ptp(colours, axis=-1) > 0.1
    ).mean() > 0.005  # attended tokens are blue; without the script all are grey
