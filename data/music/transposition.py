"""Transposition of rows of music, by a draw of each row's key.

B rows   L tokens of a row   V ids
"""

from collections.abc import Sequence

import numpy as np

from data.music.encodings import MusicEncoding
from data.music.notes import NUM_PITCHES
from data.rows import hashing
from data.rows.tables import Batch

TRANSPOSE_KEY = 21  # purpose of a draw


def find_pitches(encoding: MusicEncoding) -> np.ndarray:
    """Return the pitch of each id, int64 [V]; -1 where it has none."""
    pitch_V = np.full(len(encoding.tokens), -1)
    for first in encoding.pitch_blocks:
        pitch_V[first : first + NUM_PITCHES] = np.arange(NUM_PITCHES)
    return pitch_V


def transpose_rows(
    batch: Batch, keys: Sequence[str], pitch_V: np.ndarray, semitones: int, key_B: np.ndarray
) -> Batch:
    """Return a batch whose rows are transposed, each by up to `semitones` up or down.

    All distances are equally likely that leave the pitches of the row within 0 to 127.

    Args:
      keys: the fields of token ids, of which a row is transposed as one.
      pitch_V: the pitch of each id, or -1.
      key_B: uint64 [B], the keys of the draws.
    """
    pitches = {key: pitch_V[batch[key]] for key in keys}  # [B, L] each
    all_BN = np.concatenate(list(pitches.values()), axis=1)
    lowest_B = np.where(all_BN < 0, NUM_PITCHES - 1, all_BN).min(axis=1, initial=NUM_PITCHES - 1)
    highest_B = all_BN.max(axis=1, initial=0)
    down_B = np.minimum(lowest_B, semitones)
    up_B = np.minimum(NUM_PITCHES - 1 - highest_B, semitones)
    bits_B = hashing.draw_uint64(hashing.derive_keys(key_B, TRANSPOSE_KEY), 1)[:, 0]
    shift_B = hashing.bits_to_ints(bits_B, down_B + up_B + 1) - down_B
    moved = {
        key: np.where(pitch_BL < 0, batch[key], batch[key] + shift_B[:, None]).astype(np.int32)
        for key, pitch_BL in pitches.items()
    }
    return batch | moved
