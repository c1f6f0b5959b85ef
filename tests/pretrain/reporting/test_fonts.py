"""Pictures take letters that the usual font lacks from other installed fonts, and warn if none has
them.
"""

import warnings

import numpy as np
import pytest

from pretrain.inference.attention_maps import Panel, Token
from pretrain.inference.attention_pictures import draw_panel
from pretrain.reporting import fonts

pytestmark = pytest.mark.fast
font_manager = pytest.importorskip("matplotlib.font_manager")
LETTERS = "\U000f0000\u6570\u5b66"  # a private letter, which no font has, and two ideographs


@pytest.fixture
def font(tmp_path, monkeypatch):
    """A font with a filled square for each of LETTERS, in the folder of installed fonts."""
    builder = pytest.importorskip("fontTools.fontBuilder")
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    names = [".notdef", *(f"square{n}" for n in range(len(LETTERS)))]
    font = builder.FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(letter): name for letter, name in zip(LETTERS, names[1:])})
    pen = TTGlyphPen(None)
    pen.moveTo((50, 0))
    for point in ((50, 900), (950, 900), (950, 0)):
        pen.lineTo(point)
    pen.closePath()
    square = pen.glyph()
    font.setupGlyf(dict.fromkeys(names, square))
    font.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    font.setupHorizontalHeader(ascent=900, descent=-100)
    font.setupNameTable({"familyName": "Square", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=900)
    font.setupPost()
    path = tmp_path / "square.ttf"
    font.save(path)
    installed = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_: installed)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", list(font_manager.fontManager.ttflist))
    return installed, str(path)


def test_letters_come_from_an_installed_font(font):
    installed, path = font
    assert fonts.choose_fonts(["fox"])[0] == fonts.choose_fonts([" \t\n\ufe0f"])[0]
    families, missing = fonts.choose_fonts(["the fox", LETTERS])
    assert missing[-1] == LETTERS[0] and "Square" not in families
    installed.append(path)  # installed after matplotlib made its list
    assert fonts.choose_fonts(["the fox", LETTERS]) == (
        [*fonts.choose_fonts(["fox"])[0], "Square"],
        [],
    )
    assert fonts.choose_fonts([LETTERS + "\U000f0001"])[1] == ["\U000f0001"]


def test_a_picture_of_attention_draws_them(font, tmp_path):
    from matplotlib.image import imread

    installed, path = font
    tokens = [Token(text, False) for text in (LETTERS[0] * 4, "fox")]
    panel = Panel("encoder", tokens, tokens, np.full((1, 1, 2, 2), 0.5, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_panel(panel, 1, [1], tmp_path / "boxes.png") == [LETTERS[0]]
        installed.append(path)
        assert draw_panel(panel, 1, [1], tmp_path / "squares.png") == []
    boxes, squares = (
        (imread(tmp_path / name)[..., :3].max(axis=-1) < 0.3).sum()
        for name in ("boxes.png", "squares.png")
    )
    assert squares > boxes + 8 * 40  # eight filled squares


def test_the_warning_names_letters_and_a_remedy():
    text = fonts.describe_missing("数学言語処理自然")
    assert "数 (U+6570) 学 (U+5B66)" in text and "and 3 more" in text and "Install a font" in text
    assert fonts.describe_missing("") == ""
