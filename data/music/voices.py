"""Four voices on a grid of sixteenths, as tokens (Huang et al. 2018, section 4.1).

Of each sixteenth there is one token a voice, in the order of the voices: the pitch that begins,
`hold` where the note before goes on, or `rest`. The paper repeats the pitch of a note that goes on;
`hold` distinguishes a long note from a repeated one.

Rests follow a piece, one less than there are voices. With the end of the piece after them, the
next piece begins with the first voice of a sixteenth, so that positions in a row whose length is a
multiple of the voices are places on the grid, as in the paper.

T sixteenths   V voices
"""

import math
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

NUM_VOICES = 4
STEPS_PER_QUARTER = 4
FIRST_PITCH = len(SPECIAL_TOKENS)
HOLD = FIRST_PITCH + NUM_PITCHES
REST = HOLD + 1
TOKENS = (*SPECIAL_TOKENS, *PITCH_NAMES, "hold", "rest")
FINAL_RESTS = np.full(NUM_VOICES - 1, REST, np.int32)


def encode_piece(piece: Piece) -> np.ndarray:
    """Return the tokens of a piece, int32 [T * V + V - 1], without silence before it.

    It begins with the quarter of its first note.

    Times are rounded to sixteenths. A note ends where the next of its voice begins; of several that
    begin together the longest remains.

    Raises:
      ValueError: the piece does not have four voices, or too many tokens.
    """
    voices = sorted({note.voice for note in piece.notes})
    if len(voices) != NUM_VOICES:
        raise ValueError(f"{piece.name}: {len(voices)} voices with notes, not {NUM_VOICES}")
    begin = math.floor(min(note.start for note in piece.notes))
    T = math.ceil((piece.end - begin) * STEPS_PER_QUARTER)
    check_token_count(piece, T * NUM_VOICES)
    grid_TV = np.full((T + 1, NUM_VOICES), REST, np.int32)
    for start, end, pitch, _, voice in sorted(piece.notes):
        column_T = grid_TV[:, voices.index(voice)]
        first = round((start - begin) * STEPS_PER_QUARTER)
        column_T[first:] = REST  # the note before ends here
        column_T[first : max(round((end - begin) * STEPS_PER_QUARTER), first + 1)] = HOLD
        column_T[first] = FIRST_PITCH + pitch
    while len(grid_TV) and (grid_TV[-1] == REST).all():
        grid_TV = grid_TV[:-1]
    return np.concatenate([grid_TV.ravel(), FINAL_RESTS])


def decode_ids(ids: Sequence[int], name: str) -> Piece:
    """Return the piece of tokens; special tokens count as rests, as does a `hold` of nothing."""
    notes: list[Note] = []
    starts: dict[int, tuple[int, int]] = {}  # {voice: (sixteenth, pitch)} of the notes that sound
    padded = [*ids, *[REST] * (-len(ids) % NUM_VOICES + NUM_VOICES)]

    def end_note(voice: int, step: int) -> None:
        if voice in starts:
            first, pitch = starts.pop(voice)
            start, end = first / STEPS_PER_QUARTER, step / STEPS_PER_QUARTER
            notes.append(Note(start, end, pitch, voice=voice))

    for i, token in enumerate(padded):
        step, voice = divmod(i, NUM_VOICES)
        if token == HOLD:
            continue
        end_note(voice, step)
        if FIRST_PITCH <= token < HOLD:
            starts[voice] = step, token - FIRST_PITCH
    return Piece(name, "quarters", tuple(sorted(notes)))
