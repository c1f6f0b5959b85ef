"""Tags of words and the entities that they spell, whichever way the two are written.

scheme   a tag of an entity                                                  source
bio      B- its first word, I- those behind it                               CoNLL-2002
iob1     I- each of its words; B- the first one of an entity right behind    Ramshaw and Marcus 1995, CoNLL-2003
         another one of its type
iobes    B- first, I- inner, E- last; S- the only one
bilou    the same with L- for the last and U- for the only one               Ratinov and Roth 2009
plain    any name: a tag of its own for each word, such as a part of speech

`O` is a word outside of all. A tag may be a letter alone, where entities have no types.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
PLAIN = "plain"
LETTERS = {
    "bio": "BI",
    "iob1": "BI",
    "iobes": "BIES",
    "bilou": "BILU",
}  # those that a scheme has besides O
SCHEMES = (*LETTERS, PLAIN)
SPELLED = re.compile(r"([A-Z])(?:-(.+))?")
SAME = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """The words [start, end) of a sentence."""

    type: str
    start: int
    end: int


def entities(tags: Iterable[str]) -> list[Entity]:
    """The entities that the tags of a sentence spell, in their order, by the rules of CoNLL's own script `conlleval`, for all schemes alike.

    A word goes on with the entity of the word before it if its tag is I- or E- (L-) and the other's B- or I- of the same type. Any other
    tag but O begins an entity: what breaks a scheme is read too.
    """
    found, start, before = [], None, (OUTSIDE, "")
    for i, tag in enumerate((*tags, OUTSIDE)):
        letter, kind = split(tag)
        goes_on = letter in "IE" and before[0] in "BI" and before[1] == kind
        if start is not None and not goes_on:
            found.append(Entity(before[1], start, i))
            start = None
        if letter != OUTSIDE and not goes_on:
            start = i
        before = letter, kind
    return found


def tags_of(found: Iterable[Entity], count: int, scheme: str) -> list[str]:
    """The tags of so many words with these entities, which lie in their order and not over each other, in a scheme that spells entities."""
    tags, before = [OUTSIDE] * count, Entity("", -1, -1)
    for one in found:
        begins = "BI"[
            scheme == "iob1" and not (before.end == one.start and before.type == one.type)
        ]
        letters = [begins, *"I" * (one.end - one.start - 1)]
        if len(LETTERS[scheme]) == 4:  # the last two are of the last word, and of an only one
            letters[-1] = LETTERS[scheme][2 + (len(letters) == 1)]
        tags[one.start : one.end] = [
            f"{letter}-{one.type}" if one.type else letter for letter in letters
        ]
        before = one
    return tags


def split(tag: str) -> tuple[str, str]:
    """(letter, type) of a tag; L and U as E and S."""
    letter, _, kind = tag.partition("-")
    return SAME.get(letter, letter), kind


def detect(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme of tags; of BIO and IOB1 the one that they break less often, and BIO where they follow both."""
    tags = {tag for sentence in sentences for tag in sentence}
    if OUTSIDE not in tags and not any("-" in tag for tag in tags):
        return PLAIN
    fitting = [scheme for scheme in LETTERS if not any(wrong(tag, scheme) for tag in tags)]
    if not fitting:
        return PLAIN
    return min(
        fitting[:2], key=lambda scheme: sum(breaks(sentence, scheme) for sentence in sentences)
    )


def wrong(tag: str, scheme: str) -> bool:
    """Whether a scheme has no such tag."""
    if scheme == PLAIN or tag == OUTSIDE:
        return False
    found = SPELLED.fullmatch(tag)
    return not found or found[1] not in LETTERS[scheme]


def breaks(tags: Sequence[str], scheme: str) -> int:
    """How many tags of a sentence stand where their scheme does not have them; 0 of plain ones."""
    if scheme == PLAIN:
        return 0
    count, before = 0, (OUTSIDE, "")
    for letter, kind in map(split, (*tags, OUTSIDE)):
        inside = before[0] in "BI" and before[1] == kind
        goes_on = letter in "IE" and inside
        if scheme == "iob1":
            count += letter == "B" and not inside
        else:
            unended = scheme != "bio" and before[0] in "BI" and not goes_on
            count += unended or (letter in "IE" and not inside)
        before = letter, kind
    return count


def names(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """All tags that a model tells: O first, then for each type that is among `tags` all that the scheme has of it; plain ones as they are."""
    if scheme == PLAIN:
        return tuple(sorted(set(tags)))
    kinds = sorted({split(tag)[1] for tag in tags if tag != OUTSIDE})
    return OUTSIDE, *(
        f"{letter}-{kind}" if kind else letter for kind in kinds for letter in LETTERS[scheme]
    )
