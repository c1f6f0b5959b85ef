"""Tags as text: in every scheme the generated text is parsed to the same tags, and entities that
are not in the sentence are reported.
"""

import numpy as np
import pytest

from data.examples.tag_schemes import PLAIN, SCHEME_LETTERS, Entity, find_entities, list_tags
from data.examples.tags_as_text import (
    EntityReader,
    find_segments,
    format_entities,
    list_entity_types,
    tag_words,
)

WORDS = "Ada Lovelace met Charles Babbage in London near Ada Street".split()
TAGS = "B-person I-person O B-person I-person O B-place O B-place I-place".split()


def make_reading(*kinds):
    """Return a vocabulary that encodes all text losslessly."""
    return EntityReader(kinds, list)


def test_by_hand():
    text = "person: Ada Lovelace person: Charles Babbage place: London place: Ada Street"
    assert (
        format_entities(WORDS, TAGS, "bio") == text
        and format_entities(WORDS, ["O"] * 10, "bio") == "none"
    )
    assert list_entity_types(list_tags(TAGS, "bio"), "bio") == ("person", "place")
    read = make_reading("person", "place")
    assert (
        read(text, WORDS) == find_entities(TAGS) and tag_words(read(text, WORDS), 10, "bio") == TAGS
    )
    assert read("none", WORDS) == [] == read("", WORDS)
    assert tag_words([], 2, "bio") == ["O", "O"] and tag_words([], 2, PLAIN) == [None, None]
    assert format_entities(["a", "b"], ["B", "O"], "bio") == "entity: a" and make_reading("")(
        "entity: b", ["a", "b"]
    ) == [Entity("", 1, 2)]
    assert format_entities(["a", "b"], ["DT", "NN"], PLAIN) == "DT: a NN: b" and list_entity_types(
        ("DT", "NN"), PLAIN
    ) == ("DT", "NN")
    assert tag_words(make_reading("DT", "NN")("NN: b", ["a", "b"]), 2, PLAIN) == [None, "NN"]


@pytest.mark.parametrize("scheme", [*SCHEME_LETTERS, PLAIN])
def test_generated_tags_are_parsed_to_the_same_tags(scheme):
    """Return sentences in which no word occurs twice."""
    rng, letters = np.random.default_rng(0), SCHEME_LETTERS.get(scheme, "")
    known = (
        ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("x", "xy"))]
        if letters
        else ["DT", "NN", "DT-X"]
    )
    read = make_reading(*list_entity_types(known, scheme))
    for _ in range(300):
        count = 1 + int(rng.integers(8))
        words = [str(i) for i in rng.permutation(count)]
        tags = [known[i] for i in rng.integers(0, len(known), count)]
        assert read(format_entities(words, tags, scheme), words) == find_segments(tags, scheme)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "place: London person: Ada Lovelace",
            [Entity("person", 0, 2), Entity("place", 6, 7)],
        ),  # in another order
        (
            "place: Ada place: Ada place: Ada",
            [Entity("place", 0, 1), Entity("place", 8, 9), Entity("place", 10, 10)],
        ),  # once too often
        (
            "place: London person: Ada",
            [Entity("place", 6, 7), Entity("person", 8, 9)],
        ),  # after the previous entity where possible
        ("place:London", []),
        ("person: Ada Babbage", [Entity("person", 10, 10)]),  # the words are not adjacent
        (
            "person: Ada Lovelace place: Ada Lovelace",
            [Entity("person", 0, 2), Entity("place", 10, 10)],
        ),  # entities do not overlap
        ("person: place: London", [Entity("place", 6, 7), Entity("person", 10, 10)]),
        ("Ada Lovelace person:", [Entity("person", 10, 10)]),
        ("animal: Ada", []),  # an unknown type
    ],
)
def test_any_generated_text_is_parsed(text, expected):
    assert make_reading("person", "place")(text, WORDS) == expected


def test_words_are_compared_as_the_vocabulary_spells_them():
    """Return the text of ids in lower case, with a blank before a comma and nothing for unknown
    tokens.
    """
    spell = lambda texts: [text.lower().replace(",", " ,").replace("?", "") for text in texts]  # noqa: E731
    read = EntityReader(("Place",), spell)
    assert read("place: a , b", ["X", "A,", "B"]) == [Entity("Place", 1, 3)]
    assert read("place: b", ["?", "B"]) == [Entity("Place", 1, 2)] and read("place:", ["?"]) == [
        Entity("Place", 1, 1)
    ]


def test_types_that_could_not_be_read_again_are_refused():
    with pytest.raises(ValueError, match="'A' and 'a' alike, as 'a:'"):
        EntityReader(("A", "a"), lambda texts: [text.lower() for text in texts])
    with pytest.raises(ValueError, match="'entity:' as 'entity'"):
        EntityReader(("",), lambda texts: [text.rstrip(":") for text in texts])
