"""Music from end to end: a store of MIDI files, a run that is killed, and a continued piece."""

from xml.etree import ElementTree

import pytest

from data.config import Data
from data.music.midi_files import read_midi
from data.music.music_store import MusicStore
from data.objectives import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.__main__ import main
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from tests.data.music.midi import make_chorale, make_midi, make_voice, write_chorales
from tests.pretrain.training.recurrent_runs import check_killed_run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the path of a store that `prepare-music` has written."""
    folder = tmp_path_factory.mktemp("music")
    midi = write_chorales(folder / "midi")
    options = ["--output", str(folder / "store"), "--held-out", "0.2", "--transpose", "3"]
    assert main(["prepare-music", str(midi), *options]) == 0
    return folder / "store"


@pytest.fixture(scope="module")
def workdir(store):
    """Return the workdir of a run that has ended; one that was killed ends with the same bits."""
    run = Run(
        model=MusicTransformerConfig(
            **dict(vocab=132, width=16, depth=2, num_heads=2, head_width=4, mlp=32, max_distance=9)
        ),
        data=Data(objective=CausalLm(length=24), store=str(store), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    folder = store.parent / "runs"
    folder.mkdir()
    check_killed_run(run, folder)
    return folder / "whole"


def compose(workdir, output, *options):
    return main(["compose", "--workdir", str(workdir), "--output", str(output), *options])


@pytest.mark.more
def test_a_piece_is_continued(workdir, store, tmp_path, capsys):
    """The files have the tokens that were given and the composed ones; a seed gives the same."""
    options = ["--keep", "20", "--length", "60", "--piece", "1"]
    assert compose(workdir, tmp_path / "a" / "one", *options) == 0
    _, (name, ids), *_ = MusicStore.open(store).read_pieces("heldout")
    assert f"20 tokens of {name}, " in capsys.readouterr().out
    vocabulary = MusicStore.open(store).vocabulary
    text = (tmp_path / "a" / "one.txt").read_text()
    assert vocabulary.encode(text)[:20] == ids[:20].tolist() and len(text.split()) > 20
    notes = read_midi(tmp_path / "a" / "one.mid", "quarters").notes
    picture = ElementTree.parse(tmp_path / "a" / "one.svg").getroot()
    drawn = [one for one in picture.iter() if one.get("class") == "note"]
    assert len(drawn) == len(notes) > 8
    assert {one.get("opacity") for one in drawn} == {"0.4", "1"}
    assert compose(workdir, tmp_path / "two", *options) == 0
    assert (tmp_path / "two.txt").read_text() == text
    assert compose(workdir, tmp_path / "two", *options) == 2
    assert "two.mid exists; name another --output" in capsys.readouterr().err
    assert compose(workdir, tmp_path / "two", *options, "--seed", "1", "--overwrite") == 0
    assert (tmp_path / "two.txt").read_text() != text


def test_a_midi_file_is_continued(workdir, tmp_path):
    (tmp_path / "given.mid").write_bytes(make_chorale(77))
    options = ["--prompt", str(tmp_path / "given.mid"), "--keep", "32", "--length", "8"]
    assert compose(workdir, tmp_path / "out", *options) == 0
    given = read_midi(tmp_path / "given.mid", "quarters").notes
    found = read_midi(tmp_path / "out.mid", "quarters").notes
    first = [(note.start, note.pitch) for note in given if note.start < 2]
    assert [(note.start, note.pitch) for note in found if note.start < 2] == first


def test_what_cannot_be_continued_is_one_error(workdir, tmp_path, capsys):
    (tmp_path / "none.mid").write_text("no music at all")
    for options, message in (
        (["--prompt", str(tmp_path / "none.mid")], "none.mid is not a MIDI file that can be read"),
        (["--piece", "99"], "--piece 99: "),
        (["--keep", "0"], "--keep 0: must be at least 1"),
    ):
        assert compose(workdir, tmp_path / "out", *options) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line
    assert main(["prepare-music", str(tmp_path), "--output", str(tmp_path / "store")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "none.mid is not a MIDI file" in line and not (tmp_path / "store").exists()


def test_prepare_music_counts_what_it_leaves_out_and_names_the_other_encoding(tmp_path, capsys):
    """The error without enough pieces has the same counts."""
    midi = write_chorales(tmp_path / "midi")
    (midi / "duet.mid").write_bytes(make_midi(make_voice([60]), make_voice([50])))
    (midi / "none.mid").write_text("no music at all")
    options = ["--output", str(tmp_path / "store"), "--held-out", "0.2"]
    assert main(["prepare-music", str(midi), *options, "--on-bad-file", "skip"]) == 0
    out = capsys.readouterr().out
    assert f"1 left out: 2 voices with notes, not 4 (first: {midi / 'duet.mid'})" in out
    assert f"1 left out: is not a MIDI file that can be read (first: {midi / 'none.mid'})" in out
    assert "--encoding events reads pieces of any number of voices" in out
    sources = [str(midi / "duet.mid"), str(midi / "none.mid")]
    options = ["--output", str(tmp_path / "another"), "--on-bad-file", "skip"]
    assert main(["prepare-music", *sources, *options]) == 2
    error = capsys.readouterr().err
    assert "left out 1: 2 voices" in error and "left out 1: is not a MIDI file" in error
    assert "--encoding events" in error


def test_a_missing_library_is_named_with_its_remedy(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["prepare-music", "chorales", "--output", str(tmp_path / "store")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "this needs music21: " in line and "[music]" in line


def test_the_attention_of_a_piece_is_drawn(workdir, tmp_path):
    assert compose(workdir, tmp_path / "one", "--keep", "20", "--length", "30") == 0
    options = ["--input", str(tmp_path / "one.txt"), "--output", str(tmp_path / "page.html")]
    assert main(["attention", "--workdir", str(workdir), *options]) == 0
    assert "hold" in (tmp_path / "page.html").read_text()
