"""Tagging schemes: tags of words and the entities that they spell.

scheme   a tag of an entity                                            source
bio      B- its first word, I- the others                              CoNLL-2002
iob1     I- each of its words; B- the first word of an entity that     Ramshaw and Marcus 1995,
         directly follows another one of its type                      CoNLL-2003
iobes    B- first, I- inner, E- last; S- the only word
bilou    the same with L- for the last and U- for the only word        Ratinov and Roth 2009
plain    any name: a tag of its own for each word, such as a part of
         speech

`O` is a word outside of all entities. A tag may be a letter alone if entities have no types.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
PLAIN = "plain"
MOST = 0.7  # a detected scheme fits more than this share of the words that are not O
# The letters of a scheme other than O.
SCHEME_LETTERS = {"bio": "BI", "iob1": "BI", "iobes": "BIES", "bilou": "BILU"}
SCHEMES = (*SCHEME_LETTERS, PLAIN)
TAG_PATTERN = re.compile(r"([A-Z])(?:-(.+))?")
LETTER_ALIASES = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity: the words [start, end) of a sentence."""

    type: str
    start: int
    end: int


def find_entities(tags: Iterable[str | None]) -> list[Entity]:
    """Return the entities that the tags of a sentence spell, in order; None is read as O.

    The rules follow CoNLL's script `conlleval`, for all schemes. A word continues the entity
    of the word before it if its tag is I- or E- (L-) and the other's is B- or I- of the same type.
    Any other tag but O begins an entity, so tags that violate their scheme are read too.
    """
    found, start, before = [], None, (OUTSIDE, "")
    for i, tag in enumerate((*tags, OUTSIDE)):
        letter, kind = split_tag(OUTSIDE if tag is None else tag)
        continues = letter in "IE" and before[0] in "BI" and before[1] == kind
        if start is not None and not continues:
            found.append(Entity(before[1], start, i))
            start = None
        if letter != OUTSIDE and not continues:
            start = i
        before = letter, kind
    return found


def make_tags(found: Iterable[Entity], count: int, scheme: str) -> list[str]:
    """Return the tags of `count` words with the entities `found`.

    Args:
      found: entities in order, without overlap.
    """
    tags, before = [OUTSIDE] * count, Entity("", -1, -1)
    for entity in found:
        adjoins = before.end == entity.start and before.type == entity.type
        begins = "BI"[scheme == "iob1" and not adjoins]
        letters = [begins, *"I" * (entity.end - entity.start - 1)]
        if (
            len(SCHEME_LETTERS[scheme]) == 4
        ):  # the last two letters: of the last word, of an only word
            letters[-1] = SCHEME_LETTERS[scheme][2 + (len(letters) == 1)]
        tags[entity.start : entity.end] = [
            f"{letter}-{entity.type}" if entity.type else letter for letter in letters
        ]
        before = entity
    return tags


def split_tag(tag: str) -> tuple[str, str]:
    """Return (letter, type) of a tag, with E and S instead of L and U."""
    letter, _, kind = tag.partition("-")
    return LETTER_ALIASES.get(letter, letter), kind


def detect_scheme(sentences: Sequence[Sequence[str]]) -> str:
    """Return the scheme of the tags of sentences.

    It is the first that fits most words of entities; if no scheme fits more than MOST of them, the
    tags are plain. So a few wrong tags do not decide for all. Between BIO and IOB1, choose the one
    with fewer violations, and BIO if they are equal.
    """
    counts = collections.Counter(tag for sentence in sentences for tag in sentence)
    outside = counts.pop(OUTSIDE, 0)
    if not outside and not any("-" in tag for tag in counts):
        return PLAIN
    fitted = {
        scheme: sum(n for tag, n in counts.items() if not is_foreign_tag(tag, scheme))
        for scheme in SCHEME_LETTERS
    }
    best = max(fitted.values())
    if best <= MOST * counts.total() and counts:
        return PLAIN
    fitting = [scheme for scheme, count in fitted.items() if count == best]
    return min(
        fitting[:2],
        key=lambda scheme: sum(count_violations(sentence, scheme) for sentence in sentences),
    )


def is_foreign_tag(tag: str, scheme: str) -> bool:
    """Return whether a tag does not belong to a scheme."""
    if scheme == PLAIN or tag == OUTSIDE:
        return False
    found = TAG_PATTERN.fullmatch(tag)
    return not found or found[1] not in SCHEME_LETTERS[scheme]


def count_violations(tags: Sequence[str], scheme: str) -> int:
    """Return the number of tags of a sentence that violate the scheme; 0 for plain tags."""
    if scheme == PLAIN:
        return 0
    count, before = 0, (OUTSIDE, "")
    for letter, kind in map(split_tag, (*tags, OUTSIDE)):
        inside = before[0] in "BI" and before[1] == kind
        continues = letter in "IE" and inside
        if scheme == "iob1":
            count += letter == "B" and not inside
        else:
            unended = scheme != "bio" and before[0] in "BI" and not continues
            count += unended or (letter in "IE" and not inside)
        before = letter, kind
    return count


def list_tags(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Return all tags that a model predicts.

    These are O, then for each type among `tags` all tags of the scheme; plain tags as they are.
    """
    if scheme == PLAIN:
        return tuple(sorted(set(tags)))
    kinds = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
    return OUTSIDE, *(
        f"{letter}-{kind}" if kind else letter
        for kind in kinds
        for letter in SCHEME_LETTERS[scheme]
    )
