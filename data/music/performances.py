"""Performances as events: notes on and off, steps of time, velocities (Oore et al. 2018).

Section 4.1: 128 notes on, 128 notes off, 100 steps of 10 ms to 1 s, and 32 velocities, each of
which holds for the notes on that follow.
"""

from collections.abc import Sequence

import numpy as np

from data.music.notes import (
    NUM_PITCHES,
    PITCH_NAMES,
    SPECIAL_TOKENS,
    Note,
    Piece,
    check_token_count,
)

STEPS_PER_SECOND = 100
NUM_SHIFTS = 100
NUM_VELOCITIES = 32
WIDTH = NUM_PITCHES // NUM_VELOCITIES  # velocities of MIDI that are one token
FIRST_ON = len(SPECIAL_TOKENS)
FIRST_OFF = FIRST_ON + NUM_PITCHES
FIRST_SHIFT = FIRST_OFF + NUM_PITCHES  # of one step
FIRST_VELOCITY = FIRST_SHIFT + NUM_SHIFTS
END = FIRST_VELOCITY + NUM_VELOCITIES
TOKENS = (
    *SPECIAL_TOKENS,
    *(f"on:{name}" for name in PITCH_NAMES),
    *(f"off:{name}" for name in PITCH_NAMES),
    *(f"wait:{10 * steps}ms" for steps in range(1, NUM_SHIFTS + 1)),
    *(f"velocity:{WIDTH * i}" for i in range(NUM_VELOCITIES)),
)


def encode_piece(piece: Piece) -> np.ndarray:
    """Return the events of a piece, int32 [n], from its first note on.

    Times are rounded to 10 ms, and a note takes at least that. Of events at one time, notes off
    come first.

    Raises:
      ValueError: the piece has no notes, or too many events.
    """
    if not piece.notes:
        raise ValueError(f"{piece.name}: no notes")
    begin = min(note.start for note in piece.notes)
    check_token_count(
        piece, 3 * len(piece.notes) + (piece.end - begin) * STEPS_PER_SECOND / NUM_SHIFTS
    )
    changes: list[tuple[int, bool, int, int]] = []  # (step, is on, pitch, velocity)
    for note in piece.notes:
        start = round((note.start - begin) * STEPS_PER_SECOND)
        end = max(round((note.end - begin) * STEPS_PER_SECOND), start + 1)
        changes += [(start, True, note.pitch, note.velocity // WIDTH), (end, False, note.pitch, 0)]
    ids: list[int] = []
    now, loudness = 0, -1
    for step, is_on, pitch, velocity in sorted(changes):
        while now < step:
            shift = min(step - now, NUM_SHIFTS)
            ids.append(FIRST_SHIFT + shift - 1)
            now += shift
        if is_on and velocity != loudness:
            loudness = velocity
            ids.append(FIRST_VELOCITY + velocity)
        ids.append((FIRST_ON if is_on else FIRST_OFF) + pitch)
    return np.array(ids, np.int32)


def decode_ids(ids: Sequence[int], name: str) -> Piece:
    """Return the piece of events.

    A note ends where it begins again, and at the end of the events. A note off without a note is
    left out, and so are special tokens.
    """
    notes: list[Note] = []
    sounding: dict[int, tuple[int, int]] = {}  # {pitch: (step, velocity)}
    now, velocity = 0, 80

    def end_note(pitch: int) -> None:
        if pitch in sounding:
            start, loudness = sounding.pop(pitch)
            end = max(now, start + 1)
            notes.append(Note(start / STEPS_PER_SECOND, end / STEPS_PER_SECOND, pitch, loudness))

    for token in ids:
        if FIRST_ON <= token < FIRST_OFF:
            end_note(token - FIRST_ON)
            sounding[token - FIRST_ON] = now, velocity
        elif FIRST_OFF <= token < FIRST_SHIFT:
            end_note(token - FIRST_OFF)
        elif FIRST_SHIFT <= token < FIRST_VELOCITY:
            now += token - FIRST_SHIFT + 1
        elif FIRST_VELOCITY <= token < END:
            velocity = max(WIDTH * (token - FIRST_VELOCITY), 1)
    for pitch in list(sounding):
        end_note(pitch)
    return Piece(name, "seconds", tuple(sorted(notes)))
