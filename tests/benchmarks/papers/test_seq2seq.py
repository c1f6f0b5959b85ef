"""The groups of sentences by length of the comparison of translation models."""

import pytest


def test_each_sentence_is_in_one_group():
    pytest.importorskip("sacrebleu", reason="the extra `metrics` is not installed: no sacrebleu")
    from benchmarks.papers.seq2seq import group_by_length

    sources = ["a " * count for count in (1, 8, 9, 11, 12, 15, 16, 40)]
    groups = group_by_length(sources)
    assert list(groups) == [
        "up to 8 words",
        "9 to 11 words",
        "12 to 15 words",
        "16 words and more",
    ]
    assert list(groups.values()) == [[0, 1], [2, 3], [4, 5], [6, 7]]
