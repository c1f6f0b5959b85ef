"""Entities equal those of conlleval in every scheme, and the scheme of a file is detected from its
tags.
"""

import importlib.util

import numpy as np
import pytest

from data.examples.tag_schemes import (
    SCHEME_LETTERS,
    Entity,
    count_violations,
    detect_scheme,
    find_entities,
    is_foreign_tag,
    list_tags,
    make_tags,
)


def find_entities_slowly(tags):
    """Find the entities another way: all pairs of borders, except where an entity continues across
    a border or breaks within.
    """
    alike = {"L": "E", "U": "S"}
    pairs = [(alike.get(tag[0], tag[0]), tag[2:]) for tag in tags] + [("O", "")]
    joined = {("B", "I"), ("B", "E"), ("I", "I"), ("I", "E")}

    def continues(i):
        return i > 0 and pairs[i - 1][1] == pairs[i][1] and (pairs[i - 1][0], pairs[i][0]) in joined

    borders = [(s, e) for s in range(len(tags)) for e in range(s + 1, len(tags) + 1)]
    fits = [
        (s, e)
        for s, e in borders
        if pairs[s][0] != "O"
        and not continues(s)
        and not continues(e)
        and all(map(continues, range(s + 1, e)))
    ]
    return [Entity(pairs[s][1], s, e) for s, e in fits]


def draw_tags(letters, count=400, seed=0, kinds=("-X", "-Y-z", "")):
    """Return sentences of random tags that follow no scheme, some with a hyphen in their type or
    without one.
    """
    rng = np.random.default_rng(seed)
    known = ["O", *(f"{letter}{kind}" for letter in letters for kind in kinds)]
    return [
        [known[i] for i in rng.integers(0, len(known), 1 + rng.integers(9))] for _ in range(count)
    ]


@pytest.mark.parametrize("letters", ["BI", "BIES", "BILU"])
def test_entities_are_those_of_all_pairs_of_borders(letters):
    for tags in draw_tags(letters):
        assert find_entities(tags) == find_entities_slowly(tags), tags


@pytest.mark.parametrize("scheme", SCHEME_LETTERS)
def test_entities_survive_a_round_trip_through_tags(scheme):
    several = 0
    for tags in draw_tags(SCHEME_LETTERS[scheme]):
        found = find_entities(tags)
        tagged = make_tags(found, len(tags), scheme)
        assert (
            find_entities(tagged) == found
            and count_violations(tagged, scheme) == 0
            and not any(is_foreign_tag(tag, scheme) for tag in tagged)
        )
        several += len(found) > 1
    assert several > 100


@pytest.mark.skipif(
    importlib.util.find_spec("seqeval") is None, reason="seqeval is not a dependency"
)
def test_entities_are_those_of_seqeval():
    from seqeval.metrics.sequence_labeling import get_entities

    kinds = ("-X", "-Y")
    for tags in draw_tags("BI", kinds=kinds) + draw_tags("BIES", kinds=kinds):
        assert find_entities(tags) == [
            (kind, start, end + 1) for kind, start, end in get_entities(tags)
        ]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-X I-X", "O B-Y"], "bio"),
        (["I-X I-X B-X", "O I-Y"], "iob1"),
        (["B-X I-X E-X O S-X"], "iobes"),
        (["S-X O"], "iobes"),
        (["U-X O B-X L-X"], "bilou"),
        (["NN VB", "NN"], "plain"),
        (["B-X E-X L-X"], "plain"),  # no scheme has all of them
        (["B I O"], "bio"),
    ],
)
def test_a_scheme_is_inferred_from_its_tags(sentences, scheme):
    assert detect_scheme([sentence.split() for sentence in sentences]) == scheme


def test_violations_of_a_scheme_are_counted():
    count = {
        scheme: count_violations("I-X O B-X B-X I-Y E-X".split(), scheme)
        for scheme in ("bio", "iob1", "iobes", "plain")
    }
    assert count == {"bio": 3, "iob1": 1, "iobes": 5, "plain": 0}
    assert (
        not is_foreign_tag("B-X", "bio")
        and is_foreign_tag("E-X", "bio")
        and is_foreign_tag("B-", "bio")
        and is_foreign_tag("b-X", "bio")
        and not is_foreign_tag("x", "plain")
    )


def test_a_type_has_all_tags_of_its_scheme():
    assert list_tags({"O", "B-Y", "I-X"}, "bio") == ("O", "B-X", "I-X", "B-Y", "I-Y")
    assert list_tags({"S-X"}, "iobes") == ("O", "B-X", "I-X", "E-X", "S-X") and list_tags(
        {"B", "O"}, "bilou"
    ) == ("O", "B", "I", "L", "U")
    assert list_tags({"NN", "DT"}, "plain") == ("DT", "NN")


def test_a_word_without_a_tag_ends_an_entity():
    assert find_entities(["B-X", None, "I-X"]) == find_entities(["B-X", "O", "I-X"])
