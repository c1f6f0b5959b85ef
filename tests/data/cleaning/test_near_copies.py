"""Near copies are found at the rate of the formula, by an exact Jaccard similarity."""

import numpy as np
import pytest

from data.cleaning.duplicates import choose_remaining, group_documents
from data.cleaning.minhash import RUN_WORDS, choose_groups, compute_group_keys, compute_signatures
from data.cleaning.word_hashes import find_words, hash_runs

PAIRS, LENGTH = 300, 204  # a document of 204 words has 200 runs of five


def make_pair(numbers, number, shared):
    """Return two documents that share their first `shared` runs and no other."""
    same = numbers[: shared + RUN_WORDS - 1]
    rest = LENGTH - len(same)
    ends = [[f"{side}{number}x{i}" for i in range(rest)] for side in "pq"]
    return [" ".join([*(f"w{n}" for n in same), *end]).encode() for end in ends]


def list_runs(text):
    words = text.decode().split()
    return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}


def name_words(text):
    """Replace each digit by a letter, since numbers are one sign."""
    return text.translate(bytes.maketrans(b"0123456789", b"klmnorstuv"))


@pytest.mark.parametrize(
    ("shared", "threshold"), [(160, 0.72), (168, 0.72), (178, 0.72), (150, 0.6)]
)
def test_the_catch_rate_is_the_formula(shared, threshold):
    rng = np.random.default_rng(shared)
    pairs = [make_pair(rng.integers(0, 10**9, LENGTH), i, shared) for i in range(PAIRS)]
    raws = [name_words(text) for pair in pairs for text in pair]
    left, right = list_runs(raws[0]), list_runs(raws[1])
    similarity = len(left & right) / len(left | right)
    assert similarity == shared / (2 * 200 - shared)
    groups, size = choose_groups(threshold)
    keys = compute_group_keys(
        compute_signatures(*hash_runs(find_words(raws), RUN_WORDS)), groups, size
    )
    caught = (keys[::2] == keys[1::2]).any(axis=1).sum()
    rate = 1 - (1 - similarity**size) ** groups
    assert abs(caught - PAIRS * rate) < 4 * np.sqrt(PAIRS * rate * (1 - rate)), (caught, rate)
    others = (keys[:-2] == keys[2:]).any(axis=1)
    assert not others.any()


def test_the_default_threshold_has_14_groups_of_8():
    assert choose_groups(0.72) == (14, 8)
    assert choose_groups(1.0)[0] == 1


def test_runs_equal_those_of_a_plain_loop():
    """Hashes are equal where the words are, across documents, forms and blocks."""
    raws = [
        "The café's 1st OF 1,234 green   doors\n\nwere OPEN.".encode(),
        b"the cafe s 9st of 5 7 green doors were open",
        "雪が降る 山".encode(),
        b"one two",
        b"",
        b"?!",
        ("x" * 1500 + " end of a very long word").encode(),
    ]
    words = find_words(raws)
    texts = [
        bytes(words.text_B[a:b]).decode() for a, b in zip(words.starts_W, words.ends_W, strict=True)
    ]
    lists = [texts[a:b] for a, b in zip(words.first_D[:-1], words.first_D[1:], strict=True)]
    assert lists[0] == lists[1] == "the cafe s 0st of 0 0 green doors were open".split()
    assert lists[2:6] == [list("雪か降る山"), ["one", "two"], [], []]
    assert [len(word) for word in lists[6]] == [1000, 3, 2, 1, 4, 4, 4]
    hashes, first = hash_runs(words, 3)
    by_run = {}
    for some, start, stop in zip(lists, first[:-1], first[1:], strict=True):
        runs = [tuple(some[i : i + 3]) for i in range(max(len(some) - 2, 1))]
        assert len(runs) == stop - start
        for run, value in zip(runs, hashes[start:stop].tolist(), strict=True):
            assert by_run.setdefault(run, value) == value
    assert len(set(by_run.values())) == len(by_run)


def test_groups_are_those_of_a_search_in_the_graph():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 120, 200).astype(np.uint64) for _ in range(3)]
    found = group_documents([[columns[0]], [columns[1], columns[2]]], 200)
    for start in range(200):
        reached, todo = {start}, [start]
        while todo:
            one = todo.pop()
            near = (columns[0] == columns[0][one]) | (
                (columns[1] == columns[1][one]) & (columns[2] == columns[2][one])
            )
            todo += [i for i in np.flatnonzero(near) if i not in reached]
            reached.update(np.flatnonzero(near).tolist())
        assert set(np.flatnonzero(found == found[start])) == reached
    ranks = rng.permutation(200)
    copied = choose_remaining(found, [np.zeros(200), ranks])
    for i in range(200):
        assert ranks[copied[i]] == ranks[found == found[i]].min()
