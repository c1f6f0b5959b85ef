"""Choose the characters that have a piece of their own in a trained SentencePiece vocabulary.

A character without one is unknown wherever it stands. So every printable ASCII character has one,
and every other that occurs `MIN_COUNT` times in the sample. Characters take at most half of the
vocabulary, because a Chinese text would fill a small one. A vocabulary of fewer than 376
ids has the characters of the sample alone.
"""

import collections
import dataclasses
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import sentencepiece

MIN_COUNT = 3  # occurrences in the sample of a character that has a piece
ASCII = "".join(map(chr, range(0x21, 0x7F)))
BLANKS = " \u2581"  # the second is SentencePiece's sign for the first
SHOWN = 12  # characters of a list


@dataclasses.dataclass(frozen=True)
class CharacterChoice:
    """The characters of a vocabulary, and the text that trains it.

    Attributes:
      required: characters that have a piece whether the sample has them or not.
      coverage: the share of the characters of `texts` that have one at least.
      description: what the user reads of them.
    """

    texts: list[str]
    required: str
    coverage: float
    description: str


def choose_characters(
    texts: Iterable[str], num_ids: int, rule: str, coverage: float | None = None
) -> CharacterChoice:
    """Choose the characters of a vocabulary by their numbers in a sample.

    Args:
      num_ids: number of ids for characters and longer pieces.
      coverage: the share of the sample's characters to cover; None: as this module says.
    """
    normalize = make_normalizer(rule)
    texts = [normalize(text) for text in texts]
    counts = collections.Counter(character for text in texts for character in text)
    for blank in BLANKS:
        counts.pop(blank, None)
    most = num_ids // 2
    # A vocabulary that is too small for all of ASCII has the characters of the sample alone.
    is_small = most < 2 * len(ASCII)
    plain = (
        []
        if is_small
        else [character for character in ASCII if normalize(character).strip() == character]
    )
    if coverage is not None:
        description = f"characters: {coverage:g} of the sample have an id"
        description += ", and all of printable ASCII" if plain else ""
        return CharacterChoice(texts, "".join(plain), coverage, description)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    frequent = [
        character for character in ranked if counts[character] >= MIN_COUNT or character in ASCII
    ]
    chosen = dict.fromkeys(plain + frequent)
    reason = f"fewer than {MIN_COUNT} times in the sample"
    if len(chosen) > most and not is_small:
        chosen = dict.fromkeys([*chosen][:most])
        reason = f"characters take at most half of {num_ids:,} ids"
    left_out = [character for character in ranked if character not in chosen]
    share = 1 - sum(counts[character] for character in left_out) / max(counts.total(), 1)
    description = f"characters: {len(chosen):,} have an id, {share:.4%} of the sample"
    if left_out:
        description += f"; left out ({reason}): {format_characters(left_out)}"
    texts = replace_characters(texts, left_out)
    return CharacterChoice(texts, "".join(plain), 1.0, description)


def make_normalizer(rule: str) -> Callable[[str], str]:
    """Return SentencePiece's normalization of this name, a function of a text."""
    return sentencepiece.SentencePieceNormalizer(rule_name=rule, escape_whitespaces=False).normalize


def replace_characters(texts: list[str], characters: Sequence[str]) -> list[str]:
    """Return texts with a blank for each of some characters."""
    if not characters:
        return texts
    table = dict.fromkeys(map(ord, characters), " ")
    return [text.translate(table) for text in texts]


def format_characters(characters: Sequence[str], counts: dict[str, int] | None = None) -> str:
    """Return the first characters of a list as a reader sees them, and how many follow."""
    shown = [
        name_character(character) + (f" {counts[character]:,}" if counts else "")
        for character in characters[:SHOWN]
    ]
    more = len(characters) - SHOWN
    return (", " if counts else " ").join(shown) + (f" and {more:,} more" if more > 0 else "")


def name_character(character: str) -> str:
    """Return a character, or U+ and its number where it cannot be seen alone."""
    is_seen = character.isprintable() and unicodedata.category(character)[0] != "M"
    return character if is_seen else f"U+{ord(character):04X}"
