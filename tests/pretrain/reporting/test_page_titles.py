"""Pictures and pages of a model show any name of a workdir or of a file."""

import os
import xml.etree.ElementTree

import numpy as np
import pytest

from data.music.notes import Note, Piece
from pretrain.reporting.cell_page import ColouredText, render_cell_page
from pretrain.reporting.patch_maps import ImageMaps, render_patch_page
from pretrain.reporting.piano_roll import draw_piano_roll

pytestmark = pytest.mark.fast

TITLE = os.fsdecode(b"<caf\xe9>") + "\x1b[2J"
SHOWN = "&lt;caf\\udce9&gt;\\u001b[2J"


def test_a_piano_roll_is_xml_whatever_its_title():
    text = draw_piano_roll(Piece("p", "quarters", (Note(0, 1, 60),)), TITLE)
    assert SHOWN in text
    xml.etree.ElementTree.fromstring(text.encode())


def test_the_page_of_cells_shows_any_title():
    page = render_cell_page(TITLE, [TITLE], [ColouredText(TITLE, (), [])])
    assert page.count(SHOWN) == 4 and page.encode()


def test_the_page_of_patches_shows_any_title():
    weights = np.ones((1, 1, 2, 2), np.float32)
    maps = ImageMaps(TITLE, np.zeros((4, 4, 3), np.uint8), weights, weights[0])
    page = render_patch_page(TITLE, [maps], [1])
    assert page.count(SHOWN) == 3 and page.encode()
