"""Encodings of music: written by hand, and both ways."""

import numpy as np
import pytest

from data.music import notes
from data.music.encodings import ENCODINGS, find_encoding, make_vocabulary
from data.music.notes import Note, Piece
from data.music.performances import NUM_SHIFTS
from data.vocabulary.load import load_vocabulary

# Three quarters: the soprano repeats a note, the alto holds one, the tenor has an eighth and a
# rest, the bass begins late and is a little off the grid.
CHORALE = Piece(
    "chorale",
    "quarters",
    (
        *(Note(0, 0.5, 72, voice=0), Note(0.5, 1, 72, voice=0)),
        Note(0, 1, 67, voice=1),
        Note(0, 0.5, 60, voice=2),
        Note(0.26, 1.01, 48, voice=3),
    ),
)
CHORALE_TEXT = """
C5 G4 C4 rest
hold hold hold C3
C5 hold rest hold
hold hold rest hold
rest rest rest
"""
PERFORMANCE = Piece(
    "performance",
    "seconds",
    (Note(1.0, 1.5, 60, 64), Note(1.5, 4.0, 60, 66), Note(1.5, 1.504, 64, 100)),
)
PERFORMANCE_TEXT = (
    "velocity:64 on:C4 wait:500ms off:C4 on:C4 velocity:100 on:E4 "
    "wait:10ms off:E4 wait:1000ms wait:1000ms wait:490ms off:C4"
)


def spell(name, ids):
    return [ENCODINGS[name].tokens[i] for i in ids]


def test_voices_are_read_sixteenth_by_sixteenth():
    assert spell("voices", ENCODINGS["voices"].encode(CHORALE)) == CHORALE_TEXT.split()


def test_a_note_ends_where_the_next_of_its_voice_begins():
    """So does a longer one over which a shorter one begins, which has its own length."""
    others = tuple(Note(0, 1, 60 + voice, voice=voice) for voice in (1, 2, 3))
    notes = (Note(0, 1, 72, voice=0), Note(0.25, 0.5, 74, voice=0), *others)
    ids = ENCODINGS["voices"].encode(Piece("over", "quarters", notes))
    assert spell("voices", ids)[::4] == ["C5", "D5", "rest", "rest", "rest"]


def test_a_performance_is_read_event_by_event():
    assert spell("events", ENCODINGS["events"].encode(PERFORMANCE)) == PERFORMANCE_TEXT.split()


@pytest.mark.parametrize(("name", "size"), [("voices", 132), ("events", 390)])
def test_the_vocabulary_is_one_of_words(name, size, tmp_path):
    """Saved and loaded, it gives a text of tokens their ids, and none for another word."""
    make_vocabulary(name).save(tmp_path)
    vocabulary = load_vocabulary(tmp_path)
    assert (vocabulary.size, vocabulary.eos, vocabulary.unk) == (size, 0, 1)
    assert find_encoding(vocabulary).name == name
    ids = list(range(2, size))
    assert vocabulary.encode(" ".join(ENCODINGS[name].tokens[2:])) == ids
    assert vocabulary.decode(ids).split() == list(ENCODINGS[name].tokens[2:])
    assert vocabulary.encode("C4 H4" if name == "voices" else "on:C4 H4")[1] == 1


@pytest.mark.parametrize("name", ENCODINGS)
def test_what_is_decoded_is_encoded_to_the_same(name):
    """Random notes of four voices that do not overlap."""
    rng = np.random.default_rng(0)
    pitches = {voice: rng.permutation(np.arange(30 * voice, 30 * voice + 30)) for voice in range(4)}
    lengths, rests = rng.integers(1, 4, (4, 30)) * 0.25, rng.integers(0, 3, (4, 30)) * 0.25
    ends = np.cumsum(lengths + rests, axis=1)
    ends -= (ends - lengths).min()
    found = [
        Note(float(end - length), float(end), int(pitch), 64, voice)
        for voice in range(4)
        for end, length, pitch in zip(ends[voice], lengths[voice], pitches[voice], strict=True)
    ]
    encoding = ENCODINGS[name]
    piece = Piece("random", encoding.unit, tuple(sorted(found)))
    decoded = encoding.decode(encoding.encode(piece), "again")
    plain = [(note.start, note.end, note.pitch) for note in piece.notes]
    assert [(note.start, note.end, note.pitch) for note in decoded.notes] == plain
    if name == "voices":
        assert [note.voice for note in decoded.notes] == [note.voice for note in piece.notes]


@pytest.mark.parametrize("name", ENCODINGS)
def test_any_ids_are_a_piece(name):
    """A model may compose anything: all notes have a length and a pitch."""
    ids = np.random.default_rng(1).integers(0, len(ENCODINGS[name].tokens), 4001)
    piece = ENCODINGS[name].decode(ids.tolist(), "noise")
    assert len(piece.notes) > 500
    assert all(0 <= note.start < note.end and 0 <= note.pitch < 128 for note in piece.notes)
    assert all(1 <= note.velocity <= 127 for note in piece.notes)


def test_a_note_that_is_not_ended_ends_with_the_events():
    vocabulary = make_vocabulary("events")
    ids = vocabulary.encode("velocity:64 on:C4 wait:250ms on:E4 wait:500ms off:G4")
    notes = ENCODINGS["events"].decode(ids, "open").notes
    assert notes == (Note(0, 0.75, 60, 64), Note(0.25, 0.75, 64, 64))


def test_a_composition_begins_as_a_piece_behind_another():
    for piece in (CHORALE, PERFORMANCE):
        encoding = next(one for one in ENCODINGS.values() if one.unit == piece.unit)
        both = [*encoding.encode(piece).tolist(), make_vocabulary(encoding.name).eos]
        assert len(encoding.opening) == (4 if piece is CHORALE else 1)  # a whole sixteenth
        assert tuple(both[-len(encoding.opening) :]) == encoding.opening


def test_a_piece_that_does_not_fit_is_refused(monkeypatch):
    duet = Piece("duet.mid", "quarters", CHORALE.notes[:3])
    with pytest.raises(ValueError, match="duet.mid: 2 voices with notes, not 4"):
        ENCODINGS["voices"].encode(duet)
    with pytest.raises(ValueError, match="empty.mid: no notes"):
        ENCODINGS["events"].encode(Piece("empty.mid", "seconds", ()))
    long = Piece("long.mid", "seconds", (Note(0, 1, 60), Note(1e9, 1e9 + 1, 60)))
    with pytest.raises(ValueError, match=r"long.mid: a piece of 1,000,000,007 tokens; at most"):
        ENCODINGS["events"].encode(long)
    assert NUM_SHIFTS == 100 and notes.MAX_TOKENS == 1 << 20


def test_another_vocabulary_is_not_one_of_music(vocabulary):
    with pytest.raises(ValueError, match=r"of 96 tokens is not one of music \(voices, events\)"):
        find_encoding(vocabulary)
