"""Answers and judged words in scripts without blanks are pieces, and none is marked as a part of a
word.
"""

from types import SimpleNamespace

import pytest

from data.vocabulary.load import train_vocabulary
from pretrain.inference.fill_mask import MaskFiller, ReplacementDetector

pytestmark = pytest.mark.fast
TEXT = "今天学习语言模型 today we learn"


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary([TEXT, "天天学模型 we earn todays"] * 40, 40, algorithm="bpe")


def make_reader(kind, vocabulary):
    reader = kind.__new__(kind)
    reader.vocabulary = vocabulary
    return reader


def test_words_are_listed_one_by_one(vocabulary):
    ids, offsets = vocabulary.encode_with_offsets([TEXT])[0]
    encoding = SimpleNamespace(ids=ids, offsets=offsets, special_tokens_mask=[0] * len(ids))
    detector = make_reader(ReplacementDetector, vocabulary)
    words = [judged["word"] for judged in detector._list_words(TEXT, encoding, [0.5] * len(ids))]
    pieces = [TEXT[begin:end].strip() for begin, end in offsets]
    latin = pieces.index("模型" if "模型" in pieces else "型") + 1
    assert words == [*filter(None, pieces[:latin]), "today", "we", "learn"]


def test_an_ideograph_is_shown_as_a_word(vocabulary):
    filler = make_reader(MaskFiller, vocabulary)
    answers = {
        piece: filler._make_answer(0.5, i)["word"] for i, piece in enumerate(vocabulary.pieces)
    }
    assert answers["学"] == "学" and answers["e"] == "…e"
