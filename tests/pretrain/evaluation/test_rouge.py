"""ROUGE by hand: the examples of Lin (2004), and a plain table for the longest common subsequence."""

import random
import re

import pytest

from pretrain.evaluation.rouge import (
    compute_lcs_length,
    compute_rouge_l,
    make_rouge_n,
    split_words,
)

REFERENCE = "police killed the gunman"


def test_the_paper_s_example():
    """Section 3.1: S2 has the words in order, S3 does not; the paper gives precision and recall of
    3/4 and 2/4, which equal F1 for equal lengths.
    """
    assert compute_rouge_l(["police kill the gunman"], [REFERENCE]) == pytest.approx(75)
    assert compute_rouge_l(["the gunman kill police"], [REFERENCE]) == pytest.approx(50)
    assert (
        make_rouge_n(2)(["police kill the gunman"], [REFERENCE])
        == make_rouge_n(2)(["the gunman kill police"], [REFERENCE])
        == pytest.approx(100 / 3)
    )


def test_counts_are_clipped_and_lengths_matter():
    assert make_rouge_n(1)(["the the the cat"], ["The cat!"]) == pytest.approx(
        100 * 2 * (2 / 4) * (2 / 2) / (2 / 4 + 2 / 2)
    )
    assert make_rouge_n(1)(["a_b", "x"], ["a b", "y"]) == pytest.approx(
        50
    )  # the mean over the texts
    assert (
        make_rouge_n(2)(["one"], ["one"])
        == 0
        == compute_rouge_l([""], [""])
        == make_rouge_n(1)(["..."], ["word"])
    )
    assert make_rouge_n(1)(["Über die Straße"], ["über DIE Brücke"]) == pytest.approx(200 / 3)


def test_the_longest_common_subsequence():
    def fill_table(a, b):
        rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                rows[i + 1][j + 1] = (
                    rows[i][j] + 1 if x == y else max(rows[i][j + 1], rows[i + 1][j])
                )
        return rows[-1][-1]

    draw = random.Random(0)
    for _ in range(200):
        a, b = (draw.choices("abcd", k=draw.randrange(90)) for _ in range(2))
        assert compute_lcs_length(a, b) == fill_table(a, b)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("สวัสดีปี", ["ส", "วั", "ส", "ดี", "ปี"]),
        ("他买了a book3本。新", ["他", "买", "了", "a", "book3", "本", "新"]),
        ("cafe\u0301-bar_x", ["cafe\u0301", "bar", "x"]),
        ("\u0301 -\u0301a", ["a"]),
        ("", []),
    ],
)
def test_words_keep_their_marks_and_letters_are_words_where_there_are_no_blanks(text, words):
    assert split_words(text) == words


def test_words_are_those_of_letters_and_digits_elsewhere():
    words = re.compile(r"[^\W_]+")
    random.seed(3)
    for _ in range(300):
        text = "".join(random.choices("aB9_ -é'.ßЖ\n", k=20))
        assert split_words(text) == words.findall(text)
