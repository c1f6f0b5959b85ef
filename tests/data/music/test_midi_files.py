"""MIDI files: read, written, and refused where they are out of bounds."""

import struct
import time

import pytest

from data.music import midi_files
from data.music.midi_files import format_midi, read_midi
from data.music.notes import Note, Piece
from tests.data.music.midi import QUARTER, make_midi, make_voice


def on(ticks, pitch, velocity=80, channel=0):
    return ticks, "note_on", {"note": pitch, "velocity": velocity, "channel": channel}


def set_pedal(ticks, value):
    return ticks, "control_change", {"control": 64, "value": value}


@pytest.fixture
def read(tmp_path):
    """Return read(content, unit): the notes of a MIDI file with this content."""

    def read_content(content, unit="quarters"):
        path = tmp_path / "one.mid"
        path.write_bytes(content)
        return read_midi(path, unit).notes

    return read_content


def test_each_track_and_channel_is_a_voice_without_drums(read):
    tracks = [
        [(0, "set_tempo", {"tempo": 400_000})],
        make_voice([60, 62]),
        [*make_voice([50], channel=9), *make_voice([48], ticks=2 * QUARTER, channel=1)],
    ]
    assert read(make_midi(*tracks)) == (
        Note(0, 1, 60, 80, 0),
        Note(1, 2, 62, 80, 0),
        Note(1, 3, 48, 80, 1),
    )


def test_seconds_follow_the_tempo(read):
    """A second quarter note at half the tempo takes twice as long."""
    tempos = [(0, "set_tempo", {"tempo": 400_000}), (QUARTER, "set_tempo", {"tempo": 800_000})]
    found = read(make_midi(tempos, make_voice([60, 62, 64])), "seconds")
    times = [time for note in found for time in (note.start, note.end)]
    assert times == pytest.approx([0, 0.4, 0.4, 1.2, 1.2, 2.0])
    assert read(make_midi(make_voice([60])), "seconds")[0].end == pytest.approx(0.5)


def test_the_pedal_holds_notes_of_a_performance(read):
    """Until it is lifted, or the note begins again; a note that is still down goes on."""
    track = [
        *(set_pedal(0, 100), on(0, 60), on(0, 64), on(0, 72), on(QUARTER, 60, 0), on(0, 72, 0)),
        *(on(QUARTER, 60), on(0, 67), set_pedal(QUARTER, 0)),
        *(on(QUARTER, 60, 0), on(0, 64, 0), on(0, 67, 0)),
    ]
    ends = {(n.start, n.pitch): n.end for n in read(make_midi(track), "seconds")}
    expected = {(0, 60): 1, (0, 64): 2, (0, 72): 1.5, (1, 60): 2, (1, 67): 2}
    assert ends == pytest.approx(expected)
    plain = {(n.start, n.pitch): n.end for n in read(make_midi(track))}
    assert plain[0, 60] == 1 and plain[0, 64] == 4


def test_the_pedal_is_that_of_a_channel(read):
    """It holds the notes of its channel in all tracks, even after their ends, and no others."""
    pedal = [set_pedal(0, 100), set_pedal(4 * QUARTER, 0)]
    held, other = make_voice([60, 64]), make_voice([48], channel=1)
    found = read(make_midi(held, other, pedal), "seconds")
    assert {note.pitch: note.end for note in found} == pytest.approx({60: 2, 64: 2, 48: 0.5})
    port = [(0, "midi_port", {"port": 1}), *pedal]
    assert {note.end for note in read(make_midi(held, port), "seconds")} == {0.5, 1}
    lasting = [set_pedal(0, 100), on(0, 72, 0), *make_voice([50], 8 * QUARTER, channel=1)]
    found = read(make_midi(held, lasting), "seconds")
    assert {note.pitch: note.end for note in found} == pytest.approx({60: 1, 64: 1, 50: 4})


@pytest.mark.parametrize("unit", ["quarters", "seconds"])
def test_a_piece_that_is_written_is_read_again(read, unit):
    notes = tuple(
        Note(0.25 * i, 0.25 * i + 0.5, 50 + 7 * voice + i % 3, 60 + i, voice)
        for i in range(0, 20, 2)
        for voice in range(3)
    )
    found = read(format_midi(Piece("p", unit, notes)), unit)
    assert len(found) == 30
    for one, other in zip(found, sorted(notes), strict=True):
        assert one == pytest.approx(other, abs=1e-3)


# ---- files that are none -------------------------------------------------------


def make_file(track: bytes, kind=1, count=1, division=QUARTER, size=None) -> bytes:
    header = b"MThd" + struct.pack(">IHHH", 6, kind, count, division)
    return header + b"MTrk" + struct.pack(">I", len(track) if size is None else size) + track


END = b"\x00\xff\x2f\x00"
BAD = {
    "empty": (b"", "is not a MIDI file that can be read"),
    "text": (b"I am no music, but I am long enough.", "is not a MIDI file that can be read: MThd"),
    "cut": (make_file(b"\x00\x90\x3c"), "is not a MIDI file that can be read"),
    "no end": (make_file(END, size=1 << 31), "is not a MIDI file that can be read"),
    "tracks": (make_file(END, count=0x7FFF), "is not a MIDI file that can be read"),
    "status": (make_file(b"\x00\xf4\x00" + END), "is not a MIDI file that can be read"),
    "frames": (make_file(END, division=0xE728), "timed in frames; files timed in quarter notes"),
    "no time": (make_file(END, division=0), "timed in frames"),
    "format 2": (make_file(END, kind=2), r"of independent tracks \(format 2\)"),
    "days": (make_file(b"\x00\x90\x3c\x40" + b"\xff\xff\xff\x7f\x3c\x00" + END), "than 24 hours"),
    "ages": (make_file(b"\x00\x90\x3c\x40" + b"\xff" * 999 + b"\x7f\x3c\x00" + END), "24 hours"),
    "number": (make_file(b"\xff" * 1_000_000), "a number or a text of too many bytes"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("unit", ["quarters", "seconds"])
def test_what_is_no_midi_file_is_one_error(read, content, message, unit):
    start = time.monotonic()
    with pytest.raises(ValueError, match=rf"one\.mid.*{message}"):
        read(content, unit)
    assert time.monotonic() - start < 5


def test_a_large_file_is_refused(read, monkeypatch):
    monkeypatch.setattr(midi_files, "MAX_MIDI_BYTES", 1000)
    with pytest.raises(ValueError, match=r"one\.mid.*1,?000"):
        read(make_midi(make_voice(range(30, 90)), make_voice(range(30, 90))))


def test_a_text_of_other_letters_is_read(read):
    """Of a meta message mido reads each byte by itself; that is no long number."""
    title = "合唱".encode() * 20
    text = b"\x00\xff\x03" + bytes([len(title)]) + title
    assert read(make_file(text + b"\x00\x90\x3c\x40\x60\x3c\x00" + END))[0].pitch == 60


@pytest.mark.parametrize("unit", ["quarters", "seconds"])
def test_a_tempo_behind_the_last_note_has_no_effect(read, unit):
    tempo = b"\xff" * 999 + b"\x7f\xff\x51\x03\x01\x00\x00"
    found = read(make_file(b"\x00\x90\x3c\x40\x60\x3c\x00" + tempo + END), unit)
    assert found[0].end == pytest.approx(0.2 if unit == "quarters" else 0.1)
