"""`cells` finds the planted cell of each property, and its page shows any text as it is."""

import html
import re

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.gpt2 import Gpt2Config
from models.config.lstm_lm import LstmLmConfig
from models.generation.decoding import unstack_model
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import Run
from pretrain.inference.cells.best_cells import (
    PROPERTIES,
    count_brackets,
    count_in_line,
    count_in_word,
    find_best_cells,
    mark_quotes,
    measure_entropy,
    measure_information,
)
from pretrain.inference.cells.read_text import compute_cells, read_text
from pretrain.reporting.cell_page import ColouredText, name_shade, render_cell_page
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained

WIDTH, BIG = 12, 40.0
# What a letter is, a row of the embeddings each.
IS_LETTER, IS_BREAK, IS_OPEN, IS_CLOSE, IS_DOWN, IS_UP = range(6)
PLANTED = {"inside quotes": 7, "position in the line": 2, "bracket depth": 10}
PLANTED |= {"position in the word": 5}  # cells of the second layer, from 0
PHRASES = ("the prince", "saw nothing", "(so he thought, [as ever])", "“no, it is”", "{12}", "of")
WORDS = " ".join(PHRASES)


# ---- properties ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compute", "text", "expected"),
    [
        (mark_quotes, 'a "b" c', "0011000"),
        (mark_quotes, "“a “b” c", "11111000"),
        (mark_quotes, '"a\n\n"b', "111011"),
        (count_brackets, "a(b[c])d)(", "0112210001"),
        (count_in_line, "ab\nc\n\nde", "12010012"),
        (count_in_word, "ab c12-é", "12012301"),
    ],
)
def test_properties_are_those_of_the_text(compute, text, expected):
    assert "".join(map(str, compute(text))) == expected


# ---- information -----------------------------------------------------------------


def test_information_is_that_of_the_counts():
    """A cell of two values and a property of three, with all counts in a table."""
    count_XY = np.array([[300, 100, 100], [50, 50, 400]])
    x, y = (np.repeat(index.ravel(), count_XY.ravel()) for index in np.indices(count_XY.shape))
    share = count_XY / count_XY.sum()
    independent = share.sum(1, keepdims=True) * share.sum(0)
    expected = (share * np.log2(share / independent)).sum() + (1 + 2 - 5) / 2_000 / np.log(2)
    assert measure_information(x * 0.3 - 0.9, y) == pytest.approx(expected, abs=1e-12)


def test_a_cell_that_knows_nothing_has_no_information():
    """Without the correction 30 bins and 8 classes of 5,000 places would have 0.03 bits."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        found = measure_information(rng.normal(size=5_000), rng.integers(0, 8, 5_000))
        assert abs(found) < 0.01


def test_rare_values_are_in_bins_of_their_own():
    """1 in 100 places is within brackets, and 1 in 400 within two."""
    y = np.zeros(4_000, np.int64)
    y[::100], y[::400] = 1, 2
    assert measure_information(0.1 * y, y) == pytest.approx(measure_entropy(y))


# ---- a planted cell of each property ---------------------------------------------


def make_run(model):
    return Run(model=model, data=Data(objective=CausalLm(length=32)))


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary([WORDS], 257, layout="gpt2", algorithm="byte_bpe")


def plant_cells(params, vocabulary):
    """Return parameters whose second layer has a cell of each property, and other random cells.

    The first layer passes on what each byte is: c = tanh(g) = 1 where the feature holds. Gates of
    planted cells are at +-40, so that they are open or closed.
    """
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), params)
    table_VD = params["token_embedding"]["embedding"]
    table_VD[:, :6] = 0
    features = (
        {"\n": IS_BREAK}
        | dict.fromkeys("([{", IS_UP)
        | dict.fromkeys(")]}", IS_DOWN)
        | {letter: IS_LETTER for letter in WORDS if letter.isalnum()}
    )
    features |= {"“": IS_OPEN, "”": IS_CLOSE}  # by their last bytes
    for mark, feature in features.items():
        table_VD[vocabulary.encode(mark)[-1], feature] = 1
    layers = params["decoder"]["layers"]["lstm"]
    kernel_NDG, bias_NG = layers["input"]["kernel"], layers["input"]["bias"]
    recurrent_NDG = layers["recurrent"]["kernel"]

    def set_cell(layer, cell, gates):
        """Set the gates i, f, g and o: {feature: weight}, and None for the bias."""
        for gate, weights in enumerate(gates):
            column = gate * WIDTH + cell
            kernel_NDG[layer, :, column] = recurrent_NDG[layer, :, column] = 0
            bias_NG[layer, column] = weights.get(None, 0)
            for feature, weight in weights.items():
                if feature is not None:
                    kernel_NDG[layer, feature, column] = weight

    is_open, is_shut = {None: BIG}, {None: -BIG}
    for feature in range(6):
        set_cell(0, feature, (is_open, is_shut, {feature: BIG}, is_open))
    # h of the first layer is tanh(1) = 0.76 where a feature holds: half of it is the threshold.
    step, half = 2 * BIG / np.tanh(1), -BIG
    set_cell(  # 1 after an opening mark, -1 after a closing one
        1,
        PLANTED["inside quotes"],
        (
            {None: half, IS_OPEN: step, IS_CLOSE: step},
            {None: -half, IS_OPEN: -step, IS_CLOSE: -step},
            {IS_OPEN: BIG, IS_CLOSE: -BIG},
            is_open,
        ),
    )
    set_cell(  # 0.02 more for each byte, 0 after a break
        1,
        PLANTED["position in the line"],
        ({None: -half, IS_BREAK: -step}, {None: -half, IS_BREAK: -step}, {None: 0.02}, is_open),
    )
    set_cell(
        1,
        PLANTED["bracket depth"],
        (
            {None: half, IS_UP: step, IS_DOWN: step},
            is_open,
            {IS_UP: BIG, IS_DOWN: -BIG},
            is_open,
        ),
    )
    set_cell(
        1,
        PLANTED["position in the word"],
        ({None: half, IS_LETTER: step}, {None: half, IS_LETTER: step}, {None: 0.1}, is_open),
    )
    return params


@pytest.fixture(scope="module")
def workdir(vocabulary, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "planted"
    run = make_run(LstmLmConfig(vocab=257, width=WIDTH, depth=2, dropout=0.0))
    shapes = jax.eval_shape(make_initializer(run))
    start_workdir(path, run, plant_cells(shapes, vocabulary), vocabulary)
    return path


@pytest.fixture(scope="module")
def text():
    """Return lines of random lengths, of words, quotes and brackets."""
    rng, text = np.random.default_rng(1), ""
    while len(text) < 4_000:
        text += PHRASES[rng.integers(len(PHRASES))] + " \n"[int(rng.random() < 0.1)]
    return text


def test_the_planted_cells_are_found(workdir, text):
    read = read_text(open_trained(workdir), text)
    assert len(read.end_T) == len(text) and read.cells_TC.shape == (len(text), 2 * WIDTH)
    for best in find_best_cells(read):
        (cell, bits), (_, second) = best.ranked[:2]
        assert read.name_cell(cell) == f"layer 2, cell {PLANTED[best.property.name] + 1}"
        assert bits > 0.85 * best.entropy > 0 and bits > second + 0.1
        if best.property.is_marked:  # its values are the property's: nothing is missing
            assert bits == pytest.approx(best.entropy, abs=0.01)


def test_a_long_text_is_read_as_one_row(workdir, text):
    """In calls of 512 tokens, with the state between; by one call here."""
    trained = open_trained(workdir)
    ids = np.random.default_rng(0).integers(0, 257, 1_300).astype(np.int32)
    found = compute_cells(trained, ids)
    model, params = unstack_model(build(trained.run.model), trained.params)
    _, seen = model.apply({"params": params}, ids[None], mutable=["cells"])
    for i in range(2):
        (cells,) = seen["cells"]["decoder"][f"layer_{i}"]["cells"]
        np.testing.assert_allclose(found[:, i * WIDTH : (i + 1) * WIDTH], cells[0], atol=2e-5)


# ---- the page --------------------------------------------------------------------


def test_the_page_shows_the_text_by_its_cells(workdir, text, tmp_path, capsys):
    evil = '<script>alert("&amp;")</script>'
    source, output = tmp_path / "a<b>.txt", tmp_path / "cells.html"
    source.write_text(evil + text, encoding="utf-8")
    words = ["--workdir", str(workdir), "--input", str(source), "--output", str(output)]
    assert main(["cells", *words, "--shown", "900"]) == 0
    printed, page = capsys.readouterr().out, output.read_text(encoding="utf-8")
    assert "inside quotes: layer 2, cell 8, " in printed
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    sections = re.findall(r"<section>\n<h2>(.*?)</h2>.*?<pre>(.*?)</pre>", page, re.DOTALL)
    assert [name for name, _ in sections] == [each.name for each in PROPERTIES]
    for _, excerpt in sections:
        shown = html.unescape(re.sub(r"</?(?:span|u)[^>]*>", "", excerpt))
        assert len(shown) == 900 and shown in evil + text
    quotes = sections[0][1]  # +1 is after an opening mark, and is underlined
    marked = re.findall(r'<span class="(\w)\d"><u>', quotes)
    assert marked and set(marked) == {"p"} and '<span class="n6">' in quotes


def test_parts_are_escaped_and_shaded():
    parts = [("<b>", 0.99, False), ("&", 1.0, True), ('"', -0.5, False), ("\n", 0.01, False)]
    page = render_cell_page("<t>", ["<n>"], [ColouredText("<s>", ("<m>",), parts)])
    assert (
        '<span class="p8">&lt;b&gt;</span><span class="p8"><u>&amp;</u></span>'
        '<span class="n4">&quot;</span>\n</pre>'
    ) in page
    assert not re.search(r"<[tnsm]>", page)
    assert "<pre>" not in render_cell_page("t", ["n"], [ColouredText("s", ("the same",), [])])
    assert [name_shade(x) for x in (-1, -0.05, 0.05, 0.07, 1)] == ["n8", "", "", "p1", "p8"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--output": "cells.txt"}, r"the name must end in \.html"),
        ({"--input": "none.txt"}, "there is no such file"),
        ({"--input": "short.txt"}, "3 characters; information is measured from at least 100"),
        ({"--input": "latin.txt"}, "not UTF-8 at byte 0"),
        ({"--characters": "9"}, "--characters 9: must be at least 100"),
        ({"--workdir": "gpt2"}, "a Gpt2Config has no cells"),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_error(workdir, vocabulary, tmp_path, capsys, change, message):
    (tmp_path / "in.txt").write_text(WORDS * 3, encoding="utf-8")
    (tmp_path / "short.txt").write_text("abc")
    (tmp_path / "latin.txt").write_bytes(b"\xe9" * 200)
    if "--workdir" in change:
        run = make_run(Gpt2Config(vocab=257, length=40, width=8, depth=1, num_heads=2, mlp=8))
        start_workdir(tmp_path / "gpt2", run, make_initializer(run)(), vocabulary)
    words = {"--workdir": workdir, "--input": tmp_path / "in.txt", "--output": tmp_path / "a.html"}
    for flag, value in change.items():
        words[flag] = value if flag == "--characters" else tmp_path / value
    assert main(["cells", *(str(word) for pair in words.items() for word in pair)]) != 0
    assert re.search(message, capsys.readouterr().err)
