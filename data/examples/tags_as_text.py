"""Tags of words as a text that a seq2seq model generates, and tags read back from that text.

The text has the entities in order, each after its type, with one blank between them:

    person: Ada Lovelace location: Paris

With plain tags, each word comes after its tag. A word may occur twice in a sentence: entities of
the text are searched from left to right.
"""

import re
from collections.abc import Callable, Sequence

from data.examples.tag_schemes import OUTSIDE, PLAIN, Entity, find_entities, make_tags, split_tag

NO_ENTITY = "none"  # the text of a sentence without entities
UNTYPED_NAME = "entity"  # name of the type if tags are letters alone


def find_segments(tags: Sequence[str], scheme: str) -> list[Entity]:
    """Return the entities that tags spell; with plain tags, each word is one of that type."""
    return (
        [Entity(tag, i, i + 1) for i, tag in enumerate(tags)]
        if scheme == PLAIN
        else find_entities(tags)
    )


def list_entity_types(names: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Return the entity types of these tags, "" for a letter alone; for plain tags, the tags."""
    return (
        tuple(names)
        if scheme == PLAIN
        else tuple(dict.fromkeys(split_tag(name)[1] for name in names if name != OUTSIDE))
    )


def format_entities(words: Sequence[str], tags: Sequence[str], scheme: str) -> str:
    """Return the text of a sentence's entities."""
    return (
        " ".join(
            f"{entity.type or UNTYPED_NAME}: {' '.join(words[entity.start : entity.end])}"
            for entity in find_segments(tags, scheme)
        )
        or NO_ENTITY
    )


class EntityReader:
    """Reads the entities of a sentence from a text that a model wrote."""

    def __init__(self, kinds: Sequence[str], spell: Callable[[list[str]], list[str]]) -> None:
        """Prepare to read entities of these types.

        Args:
          spell: texts -> the same texts, encoded and decoded by the vocabulary.

        Raises:
          ValueError: the vocabulary spells two types alike, or one not at all.
        """
        self.spell_texts = spell
        self.kinds: dict[str, str] = {}
        for kind, text in zip(kinds, spell([f"{kind or UNTYPED_NAME}:" for kind in kinds])):
            if not text.endswith(":") or len(text) < 2:
                raise ValueError(
                    f"the vocabulary spells {f'{kind or UNTYPED_NAME}:'!r} as {text!r}: "
                    "the model's text could not be read again"
                )
            if text in self.kinds:
                raise ValueError(
                    f"the vocabulary spells the types {self.kinds[text]!r} and {kind!r} alike, "
                    f"as {text!r}: give them other names"
                )
            self.kinds[text] = kind
        names = "|".join(map(re.escape, sorted(self.kinds, key=len, reverse=True)))
        self.type_pattern = re.compile(rf"(?:^|(?<=\s))({names})(?=\s|$)")

    def parse_entities(self, text: str) -> list[tuple[str, str]]:
        """Return [(type, text without blanks)] in order; text before the first type is ignored."""
        _, *parts = self.type_pattern.split(text)
        return [
            (self.kinds[name], "".join(part.split())) for name, part in zip(parts[::2], parts[1::2])
        ]

    def __call__(self, text: str, words: Sequence[str]) -> list[Entity]:
        """Return the entities of a text, in the order of the sentence and without overlap.

        An entity that is not in the sentence begins and ends after the last word.
        """
        spelled = ["".join(word.split()) for word in self.spell_texts(list(words))]
        free, position = [True] * len(words), 0
        found = []
        for kind, entity_text in self.parse_entities(text):
            # First the matches after the last entity, then those before it.
            matches = sorted(
                _find_matches(spelled, free, entity_text),
                key=lambda match: (match[0] < position, match[0]),
            )
            start, position = matches[0] if matches else (len(words), position)
            end = position if matches else start
            free[start:end] = [False] * (end - start)
            found.append(Entity(kind, start, end))
        return sorted(found, key=lambda entity: entity.start)


def _find_matches(spelled: Sequence[str], free: Sequence[bool], text: str) -> list[tuple[int, int]]:
    """Return the ranges [start, end) of free words that spell `text`, which has no blanks."""
    found = []
    for start in range(len(spelled) if text else 0):
        joined, end = "", start
        while end < len(spelled) and free[end] and len(joined) < len(text):
            joined, end = joined + spelled[end], end + 1
        if joined == text and spelled[start]:
            found.append((start, end))
    return found


def tag_words(found: Sequence[Entity], count: int, scheme: str) -> list[str | None]:
    """Return the tags of `count` words with these entities; those outside of it are skipped.

    With plain tags, a word without an entity has the tag None.
    """
    inside = [entity for entity in found if entity.start < count]
    if scheme != PLAIN:
        return [*make_tags(inside, count, scheme)]
    tags: list[str | None] = [None] * count
    for entity in inside:
        tags[entity.start : entity.end] = [entity.type] * (entity.end - entity.start)
    return tags
