"""Tags of a sentence's words as text, for a model that writes: the entities in their order, each behind its type, and read again.

    person: Ada Lovelace  location: Paris        (with one blank between them)

Of plain tags each word stands behind its own. A word may come twice in a sentence: what is written is found from left to right.
"""

import re
from collections.abc import Sequence

from data.examples.tag_schemes import OUTSIDE, PLAIN, Entity, entities, split, tags_of

NONE = "none"  # what is written where a sentence has no entity
UNTYPED = "entity"  # the name of a type where tags are letters alone


def segments(tags: Sequence[str], scheme: str) -> list[Entity]:
    """The entities that tags spell; of plain ones each word, as an entity of that type."""
    return (
        [Entity(tag, i, i + 1) for i, tag in enumerate(tags)] if scheme == PLAIN else entities(tags)
    )


def kinds_of(names: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The types of entities that tags of these names have, "" where a tag is a letter alone; of plain ones the names."""
    return (
        tuple(names)
        if scheme == PLAIN
        else tuple(dict.fromkeys(split(name)[1] for name in names if name != OUTSIDE))
    )


def written(words: Sequence[str], tags: Sequence[str], scheme: str) -> str:
    """What is to be written for a sentence."""
    return (
        " ".join(
            f"{one.type or UNTYPED}: {' '.join(words[one.start : one.end])}"
            for one in segments(tags, scheme)
        )
        or NONE
    )


class Reading:
    """Calling it with a text that was written, and the words of the sentence, gives the entities that it says.

    kinds: the types; spell: texts -> how the vocabulary spells them, a list. Raises ValueError where it spells two types alike, or one not at all.
    """

    def __init__(self, kinds, spell):
        self.spell, self.kinds = spell, {}
        for kind, text in zip(kinds, spell([f"{kind or UNTYPED}:" for kind in kinds])):
            if not text.endswith(":") or len(text) < 2:
                raise ValueError(
                    f"the vocabulary spells {f'{kind or UNTYPED}:'!r} as {text!r}: what is written could not be read again"
                )
            if text in self.kinds:
                raise ValueError(
                    f"the vocabulary spells the types {self.kinds[text]!r} and {kind!r} alike, as {text!r}: give them other names"
                )
            self.kinds[text] = kind
        names = "|".join(map(re.escape, sorted(self.kinds, key=len, reverse=True)))
        self.begins = re.compile(rf"(?:^|(?<=\s))({names})(?=\s|$)")

    def said(self, text: str) -> list[tuple[str, str]]:
        """[(type, text)] in their order; what stands in front of the first type is nothing."""
        _, *parts = self.begins.split(text)
        return [
            (self.kinds[name], "".join(said.split())) for name, said in zip(parts[::2], parts[1::2])
        ]

    def __call__(self, text: str, words: Sequence[str]) -> list[Entity]:
        """The entities in the order of the sentence, none over another. One that stands nowhere in it begins and ends behind its last word."""
        spelt, free, at = (
            ["".join(word.split()) for word in self.spell(list(words))],
            [True] * len(words),
            0,
        )
        found = []
        for kind, said in self.said(text):
            places = sorted(_places(spelt, free, said), key=lambda place: (place[0] < at, place[0]))
            start, at = places[0] if places else (len(words), at)
            end = at if places else start
            free[start:end] = [False] * (end - start)
            found.append(Entity(kind, start, end))
        return sorted(found, key=lambda one: one.start)


def _places(spelt, free, said):
    """[(start, end)] of the words that are free and spell `said`, blanks aside."""
    found = []
    for start in range(len(spelt) if said else 0):
        text, end = "", start
        while end < len(spelt) and free[end] and len(text) < len(said):
            text, end = text + spelt[end], end + 1
        if text == said and spelt[start]:
            found.append((start, end))
    return found


def tagged(found: Sequence[Entity], count: int, scheme: str) -> list[str | None]:
    """The tags of so many words that entities spell, those that stand nowhere left out; of plain tags None for a word of which nothing is said."""
    found = [one for one in found if one.start < count]
    if scheme != PLAIN:
        return [*tags_of(found, count, scheme)]
    tags: list[str | None] = [None] * count
    for one in found:
        tags[one.start : one.end] = [one.type] * (one.end - one.start)
    return tags
