"""A piano roll: the notes of a piece as an SVG picture, time to the right and pitch upwards."""

import math

from data.music.notes import Note, Piece, name_pitch
from pretrain.reporting.html import escape_name

COLORS = ("#c0392b", "#d68910", "#1e8449", "#2471a3", "#7d3c98", "#117a65", "#5d6d7e", "#a04000")
SEMITONE = 6  # [px] height of a semitone
MARGIN_LEFT, MARGIN = 40, 24  # [px]
PIXELS = {"quarters": 24, "seconds": 48}  # of a unit of time
LINES = {"quarters": 4, "seconds": 1}  # units of time between two lines
MAX_NOTES = 20_000  # of a picture, so that a browser can show it


def draw_piano_roll(piece: Piece, title: str, given_until: float = 0.0) -> str:
    """Return the text of an SVG picture of a piece, with a color for each voice.

    Args:
      given_until: notes that begin before this time are paler: they were given, not composed.

    Raises:
      ValueError: the piece has no notes, or more than a picture can show.
    """
    if not 0 < len(piece.notes) <= MAX_NOTES:
        raise ValueError(
            f"{piece.name}: {len(piece.notes):,} notes; a piano roll shows 1 to {MAX_NOTES:,}"
        )
    lowest = min(note.pitch for note in piece.notes) - 2
    highest = max(note.pitch for note in piece.notes) + 2
    scale, height = PIXELS[piece.unit], SEMITONE * (highest - lowest + 1)
    width = math.ceil(piece.end * scale)
    bottom = MARGIN + height

    def place_pitch(pitch: int) -> int:
        return bottom - SEMITONE * (pitch - lowest + 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{MARGIN_LEFT + width + MARGIN}" '
        f'height="{bottom + MARGIN}" font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN_LEFT}" y="15" font-size="12">{escape_name(title)}</text>',
    ]
    for pitch in range(lowest, highest + 1):
        if pitch % 12 == 0:
            y = place_pitch(pitch) + SEMITONE
            parts += [
                f'<path d="M{MARGIN_LEFT} {y}h{width}" stroke="#ddd"/>',
                f'<text x="{MARGIN_LEFT - 6}" y="{y}" text-anchor="end">{name_pitch(pitch)}</text>',
            ]
    for i in range(0, math.ceil(piece.end) + 1, LINES[piece.unit]):
        x = MARGIN_LEFT + i * scale
        if x <= MARGIN_LEFT + width:
            parts += [
                f'<path d="M{x} {MARGIN}v{height}" stroke="#ddd"/>',
                f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{i}</text>',
            ]
    parts += [_draw_note(note, scale, place_pitch(note.pitch), given_until) for note in piece.notes]
    if given_until:
        x = MARGIN_LEFT + given_until * scale
        parts.append(
            f'<path d="M{x:.1f} {MARGIN}v{height}" stroke="black" stroke-dasharray="4 3"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_note(note: Note, scale: float, y: int, given_until: float) -> str:
    """Return the rectangle of a note."""
    x, width = MARGIN_LEFT + note.start * scale, max((note.end - note.start) * scale - 1, 1)
    opacity = 0.4 if note.start < given_until else 1
    return (
        f'<rect class="note" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{SEMITONE - 1}" '
        f'fill="{COLORS[note.voice % len(COLORS)]}" opacity="{opacity}"/>'
    )
