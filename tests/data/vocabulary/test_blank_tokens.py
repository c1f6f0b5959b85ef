"""A token of blanks is shown by a sign, and a text of ids has no mark of blanks."""

import json

import numpy as np
import pytest

from data.inspection import gaps, rendering
from data.vocabulary.load import train_vocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json
from pretrain.convert.tokenizer import build_tokenizer

pytestmark = pytest.mark.fast
TEXT = "数学 。 日本 語。 これは テスト。 the fox 。 a  b"


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary([TEXT] * 20, 26)


def test_sentencepiece(vocabulary):
    ids = vocabulary.encode("数学。 日本")
    assert [vocabulary.pieces[i] for i in ids] == ["▁", "数", "学", "。", "▁", "日", "本"]
    assert [*map(vocabulary.format_token, ids)] == ["␣", "数", "学", "。", "␣", "日", "本"]
    assert vocabulary.format_token(vocabulary.mask) == "[MASK]"
    assert [*map(vocabulary.is_blank, ids)] == [True, *[False] * 3, True, False, False]
    assert [rendering.decode_spaced_token(vocabulary, i) for i in ids[3:6]] == ["。", " ", "日"]


def test_bytes():
    vocabulary = train_vocabulary([TEXT] * 20, 266, layout="gpt2", algorithm="byte_bpe")
    ids = vocabulary.encode("a  fox")
    shown = [vocabulary.format_token(i) for i in ids]
    assert "".join(shown).replace("␣", "").replace(" ", "") == "afox" and "␣" in shown
    part = vocabulary.encode("é")[0]
    assert vocabulary.format_token(part) == vocabulary.pieces[part]


def test_a_tokenizer_without_a_decoder_has_texts(vocabulary):
    """The library alone joins the pieces, with their marks."""
    settings = json.loads(build_tokenizer(vocabulary, "bert").to_str())
    text, ids = "数学。 日本語。", vocabulary.encode("数学。 日本語。")
    for decoder in (settings["decoder"], None):
        read = read_tokenizer_json(json.dumps(settings | {"decoder": decoder}))
        assert read.encode(text) == ids and read.decode(ids) == text
        assert read.format_token(ids[0]) == "␣" and "▁" not in read.decode([ids[0], *ids[3:5]])


def test_gaps(vocabulary):
    """A blank in a gap has a sign; a blank between two gaps is a blank."""
    ids = vocabulary.encode("数学。 日本")
    found = gaps.describe_gaps(
        vocabulary, gaps.Gapped(ids, [(3, 0, 1), (5, 1, 2)]), np.array(ids[4:6]), np.full(2, 0.5)
    )
    assert found["text"] == ["数学", " ", "本"]
    assert [(gap["target"], gap["prediction"]) for gap in found["gaps"]] == [
        ("。", "␣"),
        ("日", "日"),
    ]


def test_a_probability_that_is_not_a_number_is_null(vocabulary):
    ids = vocabulary.encode("数学。 日本")
    found = gaps.describe_gaps(
        vocabulary, gaps.Gapped(ids, [(3, 0, 1)]), np.array(ids[4:5]), np.full(1, np.nan)
    )
    assert [gap["probability"] for gap in found["gaps"]] == [None]


def test_lines_and_tabs_of_byte_bpe_have_signs():
    """`Ċ` is how byte-level BPE writes the end of a line."""
    from data.vocabulary.released import read_byte_bpe

    letters = ["Ċ", "ĊĊ", "ĉ", "Ġ", "a", "Ġa", ".", ".Ċ", "Ċĉ", ".ĊĊĉ", "<|endoftext|>"]
    vocabulary = read_byte_bpe(
        json.dumps({piece: i for i, piece in enumerate(letters)}),
        "#version: 0.2\nĊ Ċ\nĠ a\n. Ċ\nĊ ĉ\n.Ċ Ċĉ\n",
    )
    shown = [vocabulary.format_token(letters.index(piece)) for piece in letters]
    expected = ["⏎", "⏎⏎", "⇥", "␣", "a", "a", ".", ".⏎", "⏎⇥", ".⏎⏎⇥", "<|endoftext|>"]
    assert shown == expected
