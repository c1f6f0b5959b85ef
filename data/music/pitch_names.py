"""The names of pitches and of the special tokens."""

NUM_PITCHES = 128
SPECIAL_TOKENS = ("<eos>", "<unk>")
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


def name_pitch(pitch: int) -> str:
    """Return the name of a MIDI number, such as C4 for 60."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


PITCH_NAMES = tuple(map(name_pitch, range(NUM_PITCHES)))
