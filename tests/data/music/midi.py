"""Small MIDI files that the tests make."""

import io

import mido

QUARTER = 480  # ticks


def make_midi(*tracks, **settings) -> bytes:
    """Return the bytes of a MIDI file of tracks of (ticks since the last, message, fields)."""
    file = mido.MidiFile(ticks_per_beat=QUARTER, **settings)
    for events in tracks:
        track = mido.MidiTrack()
        for time, kind, fields in events:
            is_meta = kind in ("set_tempo", "midi_port")
            make = mido.MetaMessage if is_meta else mido.Message
            track.append(make(kind, time=time, **fields))
        file.tracks.append(track)
    buffer = io.BytesIO()
    file.save(file=buffer)
    return buffer.getvalue()


def make_voice(pitches, ticks=QUARTER, channel=0):
    """Return a track of notes that follow each other."""
    events = []
    for pitch in pitches:
        events.append((0, "note_on", {"note": pitch, "velocity": 80, "channel": channel}))
        events.append((ticks, "note_off", {"note": pitch, "channel": channel}))
    return events


def make_chorale(seed: int, length: int = 12, lowest: int = 48) -> bytes:
    """Return a MIDI file of four voices of quarter notes that no two seeds have in common."""
    digits = [(seed * 7 + i * i * (seed % 5 + 1) + i) % 9 for i in range(length)]
    return make_midi(
        *(make_voice([lowest + 8 * voice + digit for digit in digits]) for voice in (3, 2, 1, 0))
    )


def write_chorales(folder, count: int = 30):
    """Write so many MIDI files to a new folder, and return it."""
    folder.mkdir()
    for seed in range(count):
        (folder / f"{seed:02}.mid").write_bytes(make_chorale(seed))
    return folder
