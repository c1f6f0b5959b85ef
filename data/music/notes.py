"""Notes and pieces, which readers make and encodings read and write."""

import dataclasses
from typing import Literal, NamedTuple

NUM_PITCHES = 128
SPECIAL_TOKENS = ("<eos>", "<unk>")
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


def name_pitch(pitch: int) -> str:
    """Return the name of a MIDI number, such as C4 for 60."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


PITCH_NAMES = tuple(map(name_pitch, range(NUM_PITCHES)))


Unit = Literal["quarters", "seconds"]
SECONDS_PER_QUARTER = 0.6  # of a piece whose tempo is not known: 100 quarter notes a minute
MAX_TOKENS = 1 << 20  # of a piece; a performance of an hour has about 100,000


class Note(NamedTuple):
    """A note.

    start, end: the times of its beginning and end, in the unit of its piece.
    pitch: its MIDI number, from 0 to 127; 60 is middle C.
    velocity: how loud it is, from 1 to 127.
    voice: the number of its voice, from 0.
    """

    start: float
    end: float
    pitch: int
    velocity: int = 80
    voice: int = 0


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of music.

    name: where it is from, as messages name it.
    unit: the unit of all times.
    notes: in any order.
    """

    name: str
    unit: Unit
    notes: tuple[Note, ...]

    @property
    def num_voices(self) -> int:
        """The number of voices."""
        return len({note.voice for note in self.notes})

    @property
    def end(self) -> float:
        """The time at which the last note ends."""
        return max((note.end for note in self.notes), default=0.0)


def check_token_count(piece: Piece, count: float) -> None:
    """Raise ValueError if a piece would take more tokens than are read."""
    if not count <= MAX_TOKENS:
        raise ValueError(
            f"{piece.name}: a piece of {count:,.0f} tokens; at most {MAX_TOKENS:,} are read. Its "
            "times may be wrong, or cut it into several files"
        )
