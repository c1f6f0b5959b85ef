"""Music from end to end: a store of MIDI files, a run that is killed, and a continued piece."""

import signal
import time
from xml.etree import ElementTree

import pytest

from data.config import Data
from data.music.midi_files import read_midi
from data.music.music_store import MusicStore
from data.objectives import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.__main__ import main
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train, to_json
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from tests.data.music.midi import make_chorale, write_chorales
from tests.pretrain.training.test_transformer_xl import train_run

STEPS = 12


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the path of a store that `prepare-music` has written."""
    folder = tmp_path_factory.mktemp("music")
    midi = write_chorales(folder / "midi")
    options = ["--output", str(folder / "store"), "--held-out", "0.2", "--transpose", "3"]
    assert main(["prepare-music", str(midi), *options]) == 0
    return folder / "store"


@pytest.fixture(scope="module")
def config(store):
    """Return the path of a run on the store."""
    run = Run(
        model=MusicTransformerConfig(
            **dict(vocab=132, width=16, depth=2, num_heads=2, head_width=4, mlp=32, max_distance=9)
        ),
        data=Data(objective=CausalLm(length=24), store=str(store), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=STEPS, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    path = store.parent / "music.json"
    path.write_text(to_json(run))
    return path


@pytest.fixture(scope="module")
def workdir(config):
    train_run(config, config.parent / "whole")
    return config.parent / "whole"


def test_a_run_that_is_killed_ends_with_the_same_bits(config, workdir, tmp_path):
    process = train_run(config, tmp_path / "killed", popen=True)
    end, metrics = time.monotonic() + 120, tmp_path / "killed" / "metrics.jsonl"
    while not any(row["step"] >= 6 for row in metrics_file.read_metrics(metrics)):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "continuing after step " in train_run(config, tmp_path / "killed")
    records = []
    for folder in (workdir, tmp_path / "killed"):
        with Checkpoints(folder, read_only=True) as checkpoints:
            records.append(checkpoints.load_record(STEPS))
    for part in ("params", "optimizer"):
        assert records[0][part] == records[1][part]


def compose(workdir, output, *options):
    return main(["compose", "--workdir", str(workdir), "--output", str(output), *options])


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
