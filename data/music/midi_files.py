"""MIDI files, which the library mido reads and writes.

A file may come from anywhere, so its size, its numbers and its times are bounded.
"""
# pyright: reportMissingImports=false

import io
import os
import pathlib
from bisect import bisect_right
from collections import defaultdict
from typing import Any

from data.corpus.untrusted import read_bounded
from data.music.notes import SECONDS_PER_QUARTER, Note, Piece, Unit

# Each event of a file is an object of about 500 bytes. The longest performances have about 400 kB.
MAX_MIDI_BYTES = 1 << 20
MAX_HOURS = 24
MAX_TICKS = 1 << 48  # more than a file of numbers of four bytes has; mido reads longer ones
# A number's bytes but the last have the highest bit, and mido reads any number of them, in time
# that grows with the square. Texts, which it reads byte by byte, may have such bytes, too.
MAX_HIGH_BYTES = 1 << 10
DRUMS = 9  # the channel of percussion, whose notes have no pitch
PEDAL = 64  # the controller of the sustain pedal
TICKS_PER_QUARTER = 480
MICROSECONDS_PER_QUARTER = 500_000  # of MIDI files that set no tempo


class _BoundedFile(io.BytesIO):
    """A file that refuses to be read where too many bytes have the highest bit in succession."""

    num_high_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.num_high_bytes = self.num_high_bytes + 1 if data and data[0] >= 0x80 else 0
        if self.num_high_bytes > MAX_HIGH_BYTES:
            raise ValueError("a number or a text of too many bytes")
        return data


def read_midi(path: str | os.PathLike[str], unit: Unit) -> Piece:
    """Return the notes of a MIDI file in quarter notes or seconds.

    Each track and channel with notes is a voice, numbered in the order of the file. Percussion is
    left out. In seconds, a note lasts as long as the sustain pedal of its channel holds it, in
    whatever track the pedal is.

    Raises:
      ModuleNotFoundError: mido is not installed.
      ValueError: it is not a MIDI file, or one that is out of bounds.
    """
    import mido

    path = pathlib.Path(path)
    data = read_bounded(path, MAX_MIDI_BYTES)
    try:
        file = mido.MidiFile(file=_BoundedFile(data), clip=True)
    except Exception as error:  # mido raises errors of many kinds
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} is not a MIDI file that can be read: {reason}") from error
    if file.ticks_per_beat <= 0 or file.type == 2:
        what = "of independent tracks (format 2)" if file.type == 2 else "timed in frames"
        raise ValueError(f"{path}: a MIDI file {what}; files timed in quarter notes are read")
    notes, tempos = _read_tracks(file, holds=unit == "seconds")
    last = max((note.end for note in notes), default=0)
    tempos = {tick: tempo for tick, tempo in tempos.items() if tick <= last}
    scale = _TempoMap(tempos, file.ticks_per_beat) if unit == "seconds" else None
    to_unit = scale.to_seconds if scale else lambda ticks: ticks / file.ticks_per_beat
    if last > MAX_TICKS or to_unit(last) > MAX_HOURS * 3600:
        raise ValueError(f"{path}: its notes take more than {MAX_HOURS} hours")
    found = (note._replace(start=to_unit(note.start), end=to_unit(note.end)) for note in notes)
    return Piece(str(path), unit, tuple(sorted(found)))


class _TempoMap:
    """Converts ticks to seconds."""

    def __init__(self, tempos: dict[int, int], ticks_per_quarter: int) -> None:
        """Take {tick: microseconds per quarter note from there on}."""
        self.per_quarter = ticks_per_quarter * 1e6
        self.ticks = sorted(tempos | {0: tempos.get(0, MICROSECONDS_PER_QUARTER)})
        self.rates = [tempos.get(tick, MICROSECONDS_PER_QUARTER) for tick in self.ticks]
        self.begins = [0.0]
        for i in range(1, len(self.ticks)):
            span = self.ticks[i] - self.ticks[i - 1]
            self.begins.append(self.begins[-1] + span * self.rates[i - 1])

    def to_seconds(self, tick: float) -> float:
        """Return the time of a tick."""
        i = bisect_right(self.ticks, tick) - 1
        return (self.begins[i] + (tick - self.ticks[i]) * self.rates[i]) / self.per_quarter


def _read_tracks(file: Any, holds: bool) -> tuple[list[Note], dict[int, int]]:
    """Return the notes, with times in ticks, and the tempos {tick: microseconds per quarter note}.

    holds: whether the sustain pedal makes notes longer. It belongs to a channel, so it may be in
      another track than the notes.
    """
    tempos: dict[int, int] = {}
    pedals: dict[tuple[int, int], _Pedal] = defaultdict(_Pedal)
    channels: dict[tuple[int, int, int], _Channel] = {}
    for tick, number, port, message in _order_messages(file.tracks):
        if message.type == "set_tempo":
            tempos[tick] = message.tempo
        channel = getattr(message, "channel", DRUMS)
        if channel == DRUMS:
            continue
        pedal = pedals[port, channel]
        one = channels.setdefault((number, port, channel), _Channel(pedal))
        if message.type == "note_on" and message.velocity:
            one.begin_note(tick, message.note, message.velocity)
        elif message.type in ("note_on", "note_off"):
            one.end_note(tick, message.note)
        elif message.type == "control_change" and message.control == PEDAL and holds:
            pedal.set_down(tick, message.value >= 64)
    notes: list[Note] = []
    num_voices = 0
    ends = [sum(message.time for message in track) for track in file.tracks]
    for (number, _, _), one in sorted(channels.items(), key=lambda item: item[0][0]):
        one.end_all(ends[number])
        notes += [note._replace(voice=num_voices) for note in one.notes]
        num_voices += bool(one.notes)
    return notes, tempos


def _order_messages(tracks: Any) -> list[tuple[int, int, int, Any]]:
    """Return (tick, number of the track, port, message) of all messages, in the order of ticks."""
    found = []
    for number, track in enumerate(tracks):
        tick = port = 0
        for message in track:
            tick += message.time
            port = message.port if message.type == "midi_port" else port
            found.append((tick, number, port, message))
    return sorted(found, key=lambda note: note[0])


class _Pedal:
    """The sustain pedal of a channel, which all tracks share."""

    def __init__(self) -> None:
        self.is_down = False
        self.held: set[tuple[_Channel, int]] = set()  # pitches that the pedal alone holds

    def set_down(self, tick: int, is_down: bool) -> None:
        self.is_down = is_down
        if not is_down:
            for channel, pitch in list(self.held):
                channel.finish_note(tick, pitch)


class _Channel:
    """The notes of a channel of a track, in ticks."""

    def __init__(self, pedal: _Pedal) -> None:
        self.pedal = pedal
        self.notes: list[Note] = []
        self.sounding: dict[int, tuple[int, int]] = {}  # {pitch: (tick, velocity)}

    def begin_note(self, tick: int, pitch: int, velocity: int) -> None:
        self.finish_note(tick, pitch)
        self.sounding[pitch] = tick, velocity

    def end_note(self, tick: int, pitch: int) -> None:
        if self.pedal.is_down and pitch in self.sounding:
            self.pedal.held.add((self, pitch))
        else:
            self.finish_note(tick, pitch)

    def finish_note(self, tick: int, pitch: int) -> None:
        self.pedal.held.discard((self, pitch))
        if pitch in self.sounding:
            start, velocity = self.sounding.pop(pitch)
            if tick > start:
                self.notes.append(Note(start, tick, pitch, velocity))

    def end_all(self, tick: int) -> None:
        for pitch in list(self.sounding):
            self.finish_note(tick, pitch)


def format_midi(piece: Piece) -> bytes:
    """Return a piece as the bytes of a MIDI file, with a track for each voice."""
    import mido

    seconds = 1.0 if piece.unit == "seconds" else SECONDS_PER_QUARTER
    tempo = MICROSECONDS_PER_QUARTER if piece.unit == "seconds" else int(seconds * 1e6)
    ticks = TICKS_PER_QUARTER * (1e6 / tempo if piece.unit == "seconds" else 1)
    file = mido.MidiFile(type=1, ticks_per_beat=TICKS_PER_QUARTER)
    file.add_track().append(mido.MetaMessage("set_tempo", tempo=tempo))
    for channel, voice in enumerate(sorted({note.voice for note in piece.notes})):
        changes = sorted(
            (round(time * ticks), velocity, note.pitch)
            for note in piece.notes
            if note.voice == voice
            for time, velocity in ((note.start, note.velocity), (note.end, 0))
        )
        track, now = file.add_track(), 0
        for tick, velocity, pitch in changes:
            message = mido.Message("note_on", channel=channel % DRUMS, note=pitch)
            track.append(message.copy(velocity=velocity, time=tick - now))
            now = tick
    buffer = io.BytesIO()
    file.save(file=buffer)
    return buffer.getvalue()
