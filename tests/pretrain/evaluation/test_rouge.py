"""ROUGE by hand: the examples of Lin (2004), and a plain table for the longest common subsequence."""

import random

import pytest

from pretrain.evaluation.rouge import compute_lcs_length, compute_rouge_l, make_rouge_n

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
