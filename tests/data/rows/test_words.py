"""Whole words in scripts without blanks are pieces, and no run is too long to be masked."""

import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest

from data.objectives import MaskedLm, SentenceOrder
from data.objectives.masking import Masker
from data.rows import hashing
from data.rows.word_finder import WordFinder
from data.vocabulary.load import train_vocabulary
from data.vocabulary.word_boundaries import (
    WITHOUT_BLANKS,
    find_script_boundaries,
    is_without_blanks,
)

SYLLABLES = {
    "Chinese": "我们今天学习语言模型的基本方法和使用技巧因为时间很多",
    "Japanese": "わたしたちは今日ことばのモデルを学びますとてもたのしい",
    "Thai": "วันนี้เราเรียนรู้แบบจำลองภาษาอย่างสนุกสนานด้วยกัน",
    "Khmer": "ថ្ងៃនេះយើងរៀនអំពីគំរូភាសាដោយសប្បាយ",
}


def write_texts(script, count=300):
    """Return texts without blanks: runs of two to five characters of a script, in any order."""
    rng, characters = np.random.default_rng(7), SYLLABLES[script]
    words = [characters[i : i + n] for i in range(0, len(characters) - 5, 2) for n in (2, 3, 5)]
    return ["".join(rng.choice(words, 40)) for _ in range(count)]


def mask_texts(vocabulary, texts, objective, ngram=1):
    """Return the share of the texts' tokens that are masked."""
    L = objective.length
    rows = np.full((len(texts), L), vocabulary.pad, np.int32)
    valid = np.zeros(rows.shape, bool)
    for row, real, ids in zip(rows, valid, vocabulary.encode_batch(texts)):
        ids = [vocabulary.cls, *ids[: L - 2], vocabulary.sep]
        row[: len(ids)], real[: len(ids)] = ids, True
    text = valid & ~vocabulary.special[rows]
    batch = Masker(objective, vocabulary, ngram)(
        rows, valid, hashing.derive_keys(1, np.arange(len(rows)))
    )
    return batch["label_weights"].sum() / text.sum()


@pytest.mark.parametrize("algorithm", ["unigram", "bpe", "byte_bpe"])
@pytest.mark.parametrize("script", SYLLABLES)
@pytest.mark.parametrize("ngram", [1, 3])
def test_as_many_tokens_are_masked_as_of_words_with_blanks(algorithm, script, ngram):
    texts, layout = write_texts(script), "roberta" if algorithm == "byte_bpe" else "bert"
    size = 250 if script == "Thai" and algorithm == "unigram" else 270
    vocabulary = train_vocabulary(texts, size, layout, algorithm)
    objective = MaskedLm(length=64, max_predictions=13, mask_rate=0.15, whole_words=True)
    share = mask_texts(vocabulary, texts, objective, ngram)
    assert 0.12 < share <= 0.17


def test_words_separated_beforehand_are_masked_whole():
    texts = [" ".join(text[i : i + 4] for i in range(0, 80, 4)) for text in write_texts("Chinese")]
    vocabulary = train_vocabulary(texts, 60, algorithm="bpe")
    starts = {
        boundaries: WordFinder(vocabulary, boundaries, 16).starts_N[vocabulary.encode(texts[0])]
        for boundaries in ("script", "blanks")
    }
    assert starts["blanks"].sum() == 20 < starts["script"].sum()


def test_a_run_that_is_too_long_is_masked_by_pieces():
    texts = ["".join("abcdefghij"[i] for i in np.random.default_rng(n).integers(0, 10, 300)) for n in range(60)]  # fmt: skip
    vocabulary = train_vocabulary(texts, 60)
    objective = MaskedLm(length=64, max_predictions=13, whole_words=True)
    assert 0.12 < mask_texts(vocabulary, texts, objective) < 0.17
    longer = MaskedLm(length=64, max_predictions=13, whole_words=True, max_word_pieces=64)
    assert mask_texts(vocabulary, texts, longer) == 0


def test_words_end_where_a_script_begins():
    pieces = ["▁we", "ar", "##ing", "的", "学们", "s", "。", "ไทย"]
    made = SimpleNamespace(
        pieces=(*pieces, "[UNK]"), size=9, keeps_spaces=False, overlap=0, unk=8, special=np.arange(9) == 8,
        starts_word=np.array([p[0] == "▁" for p in pieces] + [False]),
    )  # fmt: skip
    made.script_boundaries = find_script_boundaries(made.pieces, made.special, made.keeps_spaces)
    finder = WordFinder(made, "script", 16)
    row = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 5, 8, 5]])
    starts = finder.mark_starts(finder.starts_N[row], finder.ends_N[row], np.zeros(1, np.uint64))
    #                            we ar ing 的 学们 s 。 ไทย s UNK s
    assert starts[0].tolist() == [1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]


def test_blocks_are_ascending_and_hold_the_scripts_that_they_name():
    edges = [edge for block in WITHOUT_BLANKS for edge in block]
    assert edges == sorted(edges)
    names = ("CJK UNIFIED", "HIRAGANA LETTER", "KATAKANA LETTER", "THAI CHARACTER", "KHMER LETTER", "MYANMAR LETTER", "LAO LETTER")  # fmt: skip
    others = ("LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "HANGUL SYLLABLE", "ETHIOPIC", "GREEK")
    for code in range(0x110000):
        name = unicodedata.name(chr(code), "")
        if name.startswith(names):
            assert is_without_blanks(chr(code)), name
        elif name.startswith(others):
            assert not is_without_blanks(chr(code)), name


def test_albert_masks_texts_without_blanks():
    texts = write_texts("Chinese")
    vocabulary = train_vocabulary(texts, 400)
    objective = SentenceOrder(length=64, max_predictions=13)
    assert 0.12 < mask_texts(vocabulary, texts, objective, objective.ngram) < 0.17


def test_a_word_of_no_piece_is_refused(vocabulary):
    with pytest.raises(ValueError, match="max_word_pieces=0; a word has 1 piece or more"):
        MaskedLm(whole_words=True, max_word_pieces=0).check_vocabulary(vocabulary)
