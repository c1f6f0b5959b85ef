"""Words as characters: the released ids, words that are cut, and the words of texts."""

import numpy as np
import pytest

from data.vocabulary.load import load_vocabulary, train_vocabulary
from data.vocabulary.spelling import (
    make_speller,
    read_word_list,
    spell_vocabulary,
)
from data.vocabulary.word_level import make_text_vocabulary
from tests import elmo_numpy

TEXTS = ["the café sat", "[CLS] on\u00a0the 数学 verylongword", "a\x1cb"]


def test_characters_are_those_of_the_released_code():
    vocabulary = make_text_vocabulary(TEXTS)
    spelled = spell_vocabulary(vocabulary, 9)
    for word in ("the", "café", "数学", "verylongword"):
        (i,) = vocabulary.encode(word)
        assert spelled[i].tolist() == elmo_numpy.spell(word, 9)
    assert spelled[vocabulary.cls].tolist() == elmo_numpy.spell("<S>", 9)
    assert spelled[vocabulary.sep].tolist() == elmo_numpy.spell("</S>", 9)
    assert not spelled[vocabulary.pad].any()


def test_no_word_of_the_texts_is_unknown():
    """Also where Python and the tokenizers library disagree on what a blank is."""
    vocabulary = make_text_vocabulary(TEXTS)
    ids = vocabulary.encode_batch(TEXTS)
    words = [vocabulary.pieces[i] for text in ids for i in text]
    assert [word for word in words if word == "[UNK]"] == ["[UNK]"]  # that is written as [CLS]
    assert "a\x1cb" in words and words.count("the") == 2


def test_ids_of_any_shape_are_spelled():
    vocabulary = make_text_vocabulary(TEXTS)
    ids = np.array([[4, 5, 0], [2, 4, 3]])
    spelled = make_speller(vocabulary, 6)(ids)
    assert spelled.shape == (2, 3, 6)
    np.testing.assert_array_equal(spelled[0, 0], spelled[1, 1])


def test_words_are_trained_by_frequency(tmp_path):
    vocabulary = train_vocabulary(["b a b c", "b a d"], 6, algorithm="words")
    assert vocabulary.pieces == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "b", "a")
    vocabulary.save(tmp_path / "v")
    assert load_vocabulary(tmp_path / "v") == vocabulary
    with pytest.raises(ValueError, match="needs 5 ids at least, not 4"):
        train_vocabulary(["a"], 4, algorithm="words")
    with pytest.raises(ValueError, match="leave out --lowercase"):
        train_vocabulary(["a"], 8, algorithm="words", lowercase=True)


def test_a_list_of_words_is_read(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("</S>\n<S>\n<UNK>\nthe\n,\n\nof\n")
    assert read_word_list(path) == ["the", ",", "of"]
    path.write_text("the\nof\nthe\n")
    with pytest.raises(ValueError, match=r"vocab.txt:3: the word 'the' occurs twice"):
        read_word_list(path)
    path.write_text("the\nof course\n")
    with pytest.raises(ValueError, match=r"vocab.txt:2: a word has a blank in it: 'of course'"):
        read_word_list(path)
