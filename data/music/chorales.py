"""Bach's four-part chorales, from the corpus of the package music21."""

# pyright: reportMissingImports=false

from collections.abc import Iterator
from typing import Any

from data.music.notes import SECONDS_PER_QUARTER, Note, Piece, Unit

VOICES = ("soprano", "alto", "tenor", "bass")


def list_chorales() -> list[str]:
    """Return the names of the chorales in the corpus, in the order of Riemenschneider's edition.

    A chorale that the edition has twice is listed once.
    """
    from music21 import corpus

    return list(dict.fromkeys(corpus.chorales.Iterator(returnType="filename")))


def read_chorales(names: list[str], unit: Unit) -> Iterator[Piece]:
    """Yield the chorales, with the voices soprano, alto, tenor and bass.

    A chorale whose score does not show the four voices has all parts of its score as voices.
    """
    from music21 import corpus

    for name in names:
        parts = _choose_parts(list(corpus.parse(name).parts))
        scale = SECONDS_PER_QUARTER if unit == "seconds" else 1.0
        notes = (
            Note(scale * start, scale * end, pitch, voice=voice)
            for voice, part in enumerate(parts)
            for start, end, pitch in _list_notes(part)
        )
        yield Piece(name, unit, tuple(sorted(notes)))


def _choose_parts(parts: list[Any]) -> list[Any]:
    """Return the parts of the four voices, or all parts where they are not known."""
    if len(parts) == len(VOICES):
        return parts
    found = [
        [part for part in parts if (part.partName or "").lower().startswith(voice)]
        for voice in VOICES
    ]
    return [part for (part,) in found] if all(len(voice) == 1 for voice in found) else parts


def _list_notes(part: Any) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, pitch) of the notes of a part, in quarters; of a chord the highest."""
    for note in part.flatten().stripTies().notes:
        start = float(note.offset)
        pitch = max(pitch.midi for pitch in note.pitches)
        yield start, start + float(note.quarterLength), int(pitch)
