"""The curves that a report draws of a mixture of objectives."""

import pytest

from pretrain.reporting.curve_images import draw_curves
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
