"""The curves that a report draws of a mixture of objectives."""

import pytest

from pretrain.reporting.curve_images import MAX_POINTS, draw_curves
from pretrain.reporting.curves import list_curves

pytestmark = pytest.mark.fast

ROW = {
    "step": 2,
    "causal/causal_lm_accuracy": 0.25,
    "loss": 3.0,
    "masked/masked_accuracy": 0.5,
    "heldout_loss": 3.5,
    "heldout_masked/masked_accuracy": 0.125,
    "heldout_masked/rows": 8,
    "heldout_masked/targets": 80.0,
    "heldout_causal/causal_lm_accuracy": 0.375,
    "heldout_loss/a b": 3.25,
    "heldout_loss/a-b": 4.0,
}


def test_each_curve_is_drawn_beside_that_of_the_same_name():
    pairs = {(curve.train, curve.heldout) for curve in list_curves([ROW, ROW | {"step": 4}])}
    for name in ("causal/causal_lm_accuracy", "masked/masked_accuracy"):
        assert (name, f"heldout_{name}") in pairs
    assert not any("rows" in (held or "") or "targets" in (held or "") for _, held in pairs)


def test_no_picture_overwrites_another():
    files = [curve.file for curve in list_curves([ROW, ROW | {"step": 4}]) if curve.file]
    assert len(set(files)) == len(files) and len([f for f in files if "a_b" in f]) == 2


def test_each_curve_has_a_label_of_its_own():
    """The page finds a curve by its label. Of a text-to-text run both are there: the accuracy of
    tokens, and of the classes that the texts name.
    """
    row = {"step": 1, "loss": 3.0, "text2text_accuracy": 0.5}
    row |= {"heldout_text2text_accuracy": 0.4, "heldout_accuracy": 0.8}
    curves = {curve.label: curve.heldout for curve in list_curves([row])}
    assert curves["accuracy"] == "heldout_text2text_accuracy"
    assert curves["accuracy (heldout_accuracy)"] == "heldout_accuracy"


def test_the_image_of_a_single_value_shows_it(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    (path,) = draw_curves({"a": [{"step": 1, "loss": 3.0}]}, tmp_path)
    height, width = (pixels := image.imread(path)[..., :3]).shape[:2]
    middle = pixels[height * 2 // 5 : height * 3 // 5, width * 2 // 5 : width * 3 // 5]
    blue = abs(middle - [0x1F / 255, 0x77 / 255, 0xB4 / 255]).max(axis=-1) < 0.02
    assert blue.sum() > 9  # the legend is in a corner


@pytest.mark.filterwarnings("error")
def test_a_run_whose_name_begins_with_an_underscore_is_in_the_legend(tmp_path):
    """matplotlib leaves out such labels, with a warning."""
    pytest.importorskip("matplotlib")
    assert draw_curves({"_a": [{"step": 1, "loss": 3.0}]}, tmp_path)


def test_a_source_may_have_any_name(tmp_path):
    """Such as one that matplotlib reads as a formula, or that is longer than a file's name."""
    pytest.importorskip("matplotlib")
    names = ("$a^$", "x" * 300, "x" * 299 + "y", "\x1b[2J")
    row = {"step": 1, "loss": 3.0} | {f"heldout_loss/{name}": 2.0 for name in names}
    paths = draw_curves({"a": [row]}, tmp_path)
    assert len({path for path in paths if path.exists()}) == len(names) + 1


def test_letters_of_a_source_that_no_font_has_are_reported(tmp_path):
    pytest.importorskip("matplotlib")
    reported = []
    letter = "\U0010fffd"  # for private use
    draw_curves({"a": [{"step": 1, f"heldout_loss/{letter}": 3.0}]}, tmp_path, reported.append)
    assert len(reported) == 1 and "U+10FFFD" in reported[0]


def test_the_picture_of_a_long_run_shows_its_mean_and_its_name(tmp_path, spied):
    """Points of all steps would cover the mean, and a long name the curve."""
    axes = pytest.importorskip("matplotlib.axes").Axes
    plot, legend = spied(axes, "plot"), spied(axes, "legend")
    rows = [{"step": step, "loss": 3.0, "heldout_loss": 3.0} for step in range(1, 50_001)]
    draw_curves({"runs/" + "x" * 200 + "/end": rows}, tmp_path)
    points, mean, heldout = plot.call_args_list
    assert len(points.args[1]) <= MAX_POINTS < len(mean.args[1])
    assert points.kwargs["zorder"] < mean.kwargs["zorder"] < heldout.kwargs["zorder"]
    assert mean.kwargs["label"].startswith("…x") and "/end, training" in mean.kwargs["label"]
    (figure,) = {call.args[0].figure for call in legend.call_args_list}
    drawn = figure.axes[0]
    box = drawn.get_legend().get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width
    figure.canvas.draw()
    ticks = [tick.get_text() for tick in drawn.get_xticklabels()]
    assert "20,000" in ticks and not any("." in tick for tick in ticks)
    extents = [tick.get_window_extent() for tick in drawn.get_xticklabels()[1:-1]]
    assert all(0 <= one.x0 and one.x1 <= figure.bbox.width for one in extents)


def test_a_diverged_run_has_a_picture(tmp_path):
    """A label with all digits of its perplexity would be wider than the picture."""
    rows = [{"step": step, "heldout_perplexity": 10.0**power} for step, power in ((1, 2), (2, 300))]
    (path,) = draw_curves({"a": rows}, tmp_path)
    assert path.name == "heldout_perplexity.png"
