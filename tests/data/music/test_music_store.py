"""Stores of music: split by piece, transposed in training alone, and what is refused."""

import dataclasses
import importlib.util
import os
import shutil

import numpy as np
import pytest

from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.music.chorales import read_chorales
from data.music.encodings import ENCODINGS
from data.music.music_store import MusicRequest, MusicStore, list_midi_files, write_music_store
from data.music.transposition import find_pitches, transpose_rows
from data.music.voices import FIRST_PITCH, HOLD, TOKENS
from data.objectives import CausalLm
from data.pipeline import Stream
from data.rows.hashing import derive_keys
from data.store.kinds import open_source
from tests.data.music.midi import make_chorale, make_midi, make_voice, write_chorales
from tests.store_files import generation_folder

PITCHES = find_pitches(ENCODINGS["voices"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_chorales(tmp_path_factory.mktemp("midi") / "midi")


@pytest.fixture(scope="module")
def path(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("store") / "music"
    write_music_store(MusicRequest((str(folder),), held_out=0.2), output)
    return output


def open_stream(path, split="train", seed=0, **data):
    data = Data(objective=CausalLm(length=32), batch_size=8, **data)
    return Stream(open_source(path), data, split=split, seed=seed)


def test_each_piece_is_in_one_split(path, folder):
    store = open_source(path)
    assert isinstance(store, MusicStore)
    names = {
        split: [name for name, _ in store.read_pieces(split)] for split in ("train", "heldout")
    }
    assert sorted(names["train"] + names["heldout"]) == sorted(map(str, folder.iterdir()))
    assert 3 <= len(names["heldout"]) <= 10
    first = next(ids for _, ids in store.read_pieces("train"))
    assert len(first) == 4 * 12 * 4 + 3 and (first[4:16] == HOLD).all()
    assert not store.manifest["noted"] and store.manifest["music"]["transpose"] == 5


def test_transposed_copies_are_in_the_same_split(tmp_path):
    """Otherwise a model would be scored on what it was trained on."""
    files = tmp_path / "midi"
    files.mkdir()
    for seed in range(12):
        for lowest in (40, 47):
            (files / f"{seed}_{lowest}.mid").write_bytes(make_chorale(seed, lowest=lowest))
    store = write_music_store(MusicRequest((str(files),), held_out=0.4), tmp_path / "store")
    seeds = [
        {name.rpartition("/")[2].partition("_")[0] for name, _ in store.read_pieces(split)}
        for split in ("train", "heldout")
    ]
    assert all(seeds) and not seeds[0] & seeds[1]


def test_training_rows_are_transposed_as_a_whole(path, folder, tmp_path):
    """The rows of a store that does not transpose, moved by one distance of -5 to 5 each."""
    request = MusicRequest((str(folder),), transpose=0, held_out=0.2)
    plain = write_music_store(request, tmp_path / "plain")
    shifts = []
    for step in range(20):
        moved = open_stream(path).build_batch(step)
        still = open_stream(plain.path).build_batch(step)
        assert np.array_equal(moved["label_weights"], still["label_weights"])
        for key in ("token_ids", "labels"):
            is_pitch = PITCHES[still[key]] >= 0
            assert np.array_equal(moved[key][~is_pitch], still[key][~is_pitch])
            distances = [set((a - b)[c]) for a, b, c in zip(moved[key], still[key], is_pitch)]
            assert all(len(one) == 1 for one in distances)
            shifts.append([one.pop() for one in distances])
    assert shifts[::2] == shifts[1::2]  # of token ids and labels
    assert set(np.ravel(shifts)) == set(range(-5, 6))


def test_the_held_out_rows_are_not_transposed(path, folder, tmp_path):
    request = MusicRequest((str(folder),), transpose=0, held_out=0.2)
    plain = write_music_store(request, tmp_path / "plain")
    for key, array in open_stream(path, "heldout").build_evaluation_batch(0).items():
        other = open_stream(plain.path, "heldout").build_evaluation_batch(0)[key]
        np.testing.assert_array_equal(array, other)
    assert plain.fingerprint != open_source(path).fingerprint


def test_rows_that_continue_each_other_are_not_transposed(path, folder, tmp_path):
    data = Data(objective=CausalLm(length=32, order="lanes"), batch_size=2)
    with pytest.raises(ValueError, match="rows on lanes .* --transpose 0"):
        Stream(open_source(path), data)
    request = MusicRequest((str(folder),), transpose=0, held_out=0.2)
    plain = write_music_store(request, tmp_path / "plain")
    assert Stream(open_source(plain.path), data).build_batch(1)["is_continued"].all()
    assert Stream(open_source(path), data, split="heldout").num_rows


def test_a_batch_is_a_function_of_seed_and_step(path):
    """On any host, after any restart; another epoch has other distances."""
    stream = open_stream(path)
    whole = stream.build_batch(7)
    for lo, hi in ((0, 3), (3, 8)):
        for key, array in open_stream(path).build_batch(7, lo, hi).items():
            np.testing.assert_array_equal(array, whole[key][lo:hi])
    assert not np.array_equal(open_stream(path, seed=1).build_batch(7)["labels"], whole["labels"])
    row, epoch = np.arange(4), stream.num_rows
    rows = [stream.build(row, stream.draw_keys(row + epoch * n)[1])["labels"] for n in range(2)]
    assert not np.array_equal(*rows)


def test_pitches_stay_within_the_vocabulary():
    """A row that has the lowest or the highest pitch moves one way only, and one with both stays."""
    ends = FIRST_PITCH, HOLD - 1
    row = np.full((400, 6), HOLD, np.int32)
    row[:, 2], row[:200, 3], row[200:, 3] = ends[0] + 1, ends[0] + 60, ends[1]
    row[-100:, 2] = ends[0]
    batch = {"token_ids": row[:, :3], "labels": row[:, 3:]}
    moved = transpose_rows(batch, list(batch), PITCHES, 5, derive_keys(0, np.arange(400)))
    shift = moved["labels"][:, 0] - batch["labels"][:, 0]
    assert np.array_equal(moved["token_ids"][:, 2] - batch["token_ids"][:, 2], shift)
    assert set(shift[:200]) == set(range(-1, 6))
    assert set(shift[200:300]) == {-1, 0} and set(shift[300:]) == {0}
    counts = np.unique(shift[:200], return_counts=True)[1]
    assert counts.min() > 14  # of 200 / 7


def test_a_damaged_store_is_transposed_without_the_damaged_pieces(folder, tmp_path):
    request = MusicRequest((str(folder),), held_out=0.2)
    store = write_music_store(request, tmp_path / "store")
    tokens = generation_folder(store.path) / "train" / "tokens.bin"
    raw = bytearray(tokens.read_bytes())
    raw[10] ^= 1
    tokens.write_bytes(raw)
    with pytest.raises(ValueError, match="checksum|crc32c"):
        open_source(store.path).verify_or_salvage("refuse")
    salvaged = open_source(store.path).verify_or_salvage("skip")
    assert isinstance(salvaged, MusicStore) and len(salvaged.skipped_documents["train"])
    assert len(salvaged.open_split("train").tokens) < len(store.open_split("train").tokens)
    rows = salvaged.open_rows("train", CausalLm(length=32))
    row = np.zeros(100, np.int64)
    batch = rows.build(row, derive_keys(0, np.arange(100)))
    assert len(np.unique(batch["token_ids"], axis=0)) == 11  # the distances
    assert salvaged.fingerprint != store.fingerprint
    pieces = {name: ids.tolist() for name, ids in store.read_pieces("train")}
    left = {name: ids.tolist() for name, ids in salvaged.read_pieces("train")}
    assert 0 < len(left) < len(pieces)
    assert left == {name: pieces[name] for name in left}


def test_hidden_files_are_left_out(folder, tmp_path):
    """An archive of macOS has a file ._NAME next to each file."""
    copy = tmp_path / "midi"
    shutil.copytree(folder, copy)
    (copy / ".cache").mkdir()
    for name in ("._00.mid", ".cache/a.mid"):
        (copy / name).write_bytes(b"no music")
    assert len(list_midi_files(copy)) == len(list_midi_files(folder))


def test_a_name_that_is_not_utf8_has_its_bytes_as_escapes(folder, tmp_path):
    copy = tmp_path / "midi"
    shutil.copytree(folder, copy)
    first = sorted(copy.rglob("*.mid"))[0]
    first.rename(os.fsdecode(os.fsencode(copy) + b"/caf\xe9.mid"))
    store = write_music_store(MusicRequest((str(copy),), held_out=0.2), tmp_path / "store")
    names = [name for split in ("train", "heldout") for name, _ in store.read_pieces(split)]
    assert [name for name in names if name.endswith("caf\\udce9.mid")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transpose": 25}, r"--transpose 25: from 0 to 24 semitones"),
        ({"transpose": -1}, r"--transpose -1"),
        ({"held_out": 0.0}, r"--held-out 0.0: a share between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MusicRequest(("chorales",), **settings)


def test_sources_that_have_no_pieces_are_refused(tmp_path, folder):
    def write(*sources, **settings):
        return write_music_store(MusicRequest(sources, **settings), tmp_path / "store")

    with pytest.raises(FileNotFoundError, match=r"nowhere: no MIDI file there \(\.mid, \.midi\)"):
        write(str(tmp_path / "nowhere"))
    single = tmp_path / "one.mid"
    single.write_bytes(make_chorale(0))
    with pytest.raises(ValueError, match=r"of 1 pieces of .*one\.mid none is in the \w+ split"):
        write(str(single))
    with pytest.raises(ValueError, match="a source is given twice: .*midi .*midi/"):
        write(str(folder), f"{folder}/")
    broken = tmp_path / "broken.mid"
    broken.write_text("no music")
    message = r"broken\.mid is not a MIDI file that can be read.*; --on-bad-file skip leaves out"
    with pytest.raises(ValueError, match=message):
        write(str(folder), str(broken))
    assert not (tmp_path / "store").exists()


def test_files_that_cannot_be_read_are_left_out_and_counted_where_the_request_skips_them(
    tmp_path, folder
):
    """Large collections have hundreds, each with another message of the library."""
    for name, content in (("a", b"no music, but long enough"), ("b", b""), ("c", b"MThd\0")):
        (folder / f"bad {name}.mid").write_bytes(content)
    request = MusicRequest((str(folder),), held_out=0.2, on_bad_file="skip")
    store = write_music_store(request, tmp_path / "store")
    entry = {"count": 3, "first": str(folder / "bad a.mid")}
    assert store.manifest["noted"] == {"is not a MIDI file that can be read": entry}
    for path in folder.glob("bad*"):
        path.unlink()
    whole = MusicRequest((str(folder),), held_out=0.2)
    expected = write_music_store(whole, tmp_path / "whole").manifest["splits"]
    assert store.manifest["splits"] == expected


def test_pieces_of_other_voices_are_left_out_and_counted(tmp_path, folder):
    duet = tmp_path / "duet.mid"
    duet.write_bytes(make_midi(make_voice([60]), make_voice([50])))
    sources = (str(folder), str(duet))
    store = write_music_store(MusicRequest(sources, held_out=0.2), tmp_path / "store")
    entry = {"count": 1, "first": str(duet)}
    assert store.manifest["noted"] == {"2 voices with notes, not 4": entry}
    assert [source["rate"] for source in store.manifest["sources"]] == [1.0, 0.0]
    with pytest.raises(FileExistsError, match="store exists; name another --output"):
        write_music_store(MusicRequest(sources), tmp_path / "store")
    events = MusicRequest(sources, "events", held_out=0.2)
    again = write_music_store(events, tmp_path / "store", overwrite=True)
    assert again.vocabulary.size == 390 and not again.manifest["noted"]


def test_a_store_of_another_vocabulary_is_refused(path):
    store = open_source(path)
    music = store.manifest["music"] | {"encoding": "events"}
    other = MusicStore(store.path, store.manifest | {"music": music}, store.folder)
    with pytest.raises(ValueError, match=r"music encoded as 'events', which is not the vocabulary"):
        other.open_rows("train", CausalLm(length=32))


def test_a_chorale_of_the_corpus_has_four_voices():
    """The first of Riemenschneider's edition, BWV 269: G major in 3/4, with an upbeat."""
    if importlib.util.find_spec("music21") is None:
        pytest.skip("music21, whose corpus has the chorales, is not installed")
    (piece,) = read_chorales(["bach/bwv269"], "quarters")
    ids = ENCODINGS["voices"].encode(piece)
    assert [TOKENS[i] for i in ids[:4]] == ["G4", "D4", "B3", "G2"]
    assert dataclasses.asdict(piece)["unit"] == "quarters" and piece.num_voices == 4


def test_rows_of_voices_keep_the_grid(path):
    """Each row of 32 tokens begins with the soprano: the pieces have it in a range of its own."""
    stream = open_stream(path, "heldout")
    rows = stream.build(np.arange(stream.table.whole_S[0]), np.arange(stream.table.whole_S[0]))
    lanes = PITCHES[rows["token_ids"]].reshape(len(rows["token_ids"]), 8, 4)
    voices = (lanes - 48) // 8
    assert set(np.unique(voices[lanes >= 0])) <= {0, 1, 2, 3, 4}
    for voice, number in enumerate((3, 2, 1, 0)):
        found = lanes[:, :, voice][lanes[:, :, voice] >= 0]
        assert len(found) > 20
        assert 48 + 8 * number <= found.min() and found.max() <= 48 + 8 * number + 8


def test_the_inspection_knows_the_transposition(path, monkeypatch):
    """All checks pass; rows that are moved by other distances are not the store's."""
    stream = open_stream(path)
    report = inspect_batches(stream, 3, rows=1, batches=4)
    assert report["passed"], report["checks"]
    build = stream.build

    def build_other(row_B, key_B):
        return build(row_B, key_B + np.uint64(1))

    monkeypatch.setattr(stream, "build", build_other)
    failed = [
        check["name"] for check in inspect_batches(stream, 3)["checks"] if not check["passed"]
    ]
    assert failed == ["rows whose text is not the store's"]


def test_music_of_other_voices_alone_is_answered_with_the_other_encoding(tmp_path, capsys):
    from pretrain.__main__ import main

    for number in range(3):
        path = tmp_path / f"duet{number}.mid"
        path.write_bytes(make_midi(make_voice([60 + number]), make_voice([50])))
    with pytest.raises(
        ValueError, match="left out 3: 2 voices with notes, not 4; --encoding events reads"
    ):
        write_music_store(MusicRequest((str(tmp_path),)), tmp_path / "store")
    (tmp_path / "four.mid").write_bytes(make_chorale(0))
    (tmp_path / "other.mid").write_bytes(make_chorale(5))
    words = ["prepare-music", str(tmp_path), "--output", str(tmp_path / "store")]
    status = main([*words, "--held-out", "0.5"])
    printed = capsys.readouterr()
    assert "--encoding events reads pieces of any number" in printed.out + printed.err, status
