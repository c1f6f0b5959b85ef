"""Row 15: control sequences in texts, vocabularies, labels and names of files do not reach the
terminal, whichever command shows them.
"""

import json
import re
import shutil

import pytest

from pretrain.__main__ import main

# They retitle the window, clear the screen, hide text, overwrite a line and turn its order.
SEQUENCES = ("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\x1b[8m", "\x7f\b", "\u202e", "[red]")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NAME = "te\x1b[31mxt\x9b"  # of files and folders


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place") / NAME


@pytest.fixture
def run(capfd):
    """run(status, *words): the output of a command, in which no control character may be."""

    def run_command(expected, *words):
        capfd.readouterr()
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        assert status == expected, f"{words}: {captured.err}"
        for shown in captured:
            assert not FORBIDDEN.search(shown), f"{words[0]}: {shown!a}"
        return captured.out + captured.err

    return run_command


@pytest.fixture(scope="module")
def corpus(place):
    """A file of hostile text with a hostile name."""
    place.mkdir()
    words = " ".join(f"fox{sequence}dog the {sequence}" for sequence in SEQUENCES)
    path = place / "corpus\x1b[31m.txt"
    path.write_text("\n".join(f"{words} and {i} more words of it.\n" for i in range(60)))
    return path


MODEL = ("model.width=16", "model.depth=1", "model.num_heads=2", "model.mlp=16", "model.length=64")
TRAIN = ("data.batch_size=8", "data.objective.length=64", "data.objective.max_predictions=10")
STEPS = ("train.steps=2", "evaluate.every=2", "checkpoint.every=2", "optimizer.warmup_steps=1")


def test_the_verbs_that_show_text(corpus, run, tmp_path, record_property):
    place, text = corpus.parent, f"fox{''.join(SEQUENCES)} the <mask>"
    store, trained = place / "store", place / "run\x9b2J"
    options = ("--document", "block", "--algorithm", "byte_bpe", "--layout", "roberta")
    other = place / "plain.txt"
    other.write_text("A fox and a dog.\n\nThe dog and the fox.\n")
    # A byte-level vocabulary keeps each byte.
    shown = run(0, "prepare", corpus, other, "--output", store, *options, "--vocab-size", 300)
    assert "corpus\\u001b[31m.txt" in shown
    config = ("roberta_base", f"data.store={store}", "model.vocab=304", *MODEL, *TRAIN)
    shown = run(0, "inspect", *config, "--rows", 3, "--step", 3)
    assert "\\u001b" in shown and "[red]" in shown
    report = json.loads(run(0, "inspect", *config, "--json"))
    assert report["store"] == str(store)
    shown = run(0, "inspect", store)
    assert "\\u001b" in shown and "[red]" in shown
    run(0, "describe", *config)
    run(0, "train", *config, *STEPS, "--workdir", trained)
    run(0, "evaluate", "--workdir", trained)
    assert "[red]" in run(0, "predict", "--workdir", trained, text)
    shown = run(0, "predict", "--workdir", trained, "--json", text)
    assert json.loads(shown.splitlines()[0])["text"] == text  # JSON is exact
    run(0, "features", "--workdir", trained, "--input", corpus, "--output", tmp_path / "x\x1b.npz")
    run(0, "attention", "--workdir", trained, text, "--output", tmp_path / "a\x1b[2J.html")
    run(0, "export", "--workdir", trained, "--output", tmp_path / "ex\x1b[31mport")
    assert not FORBIDDEN.search((tmp_path / "ex\x1b[31mport" / "README.md").read_text())
    run(0, "import", tmp_path / "ex\x1b[31mport", "--workdir", tmp_path / "im\x9bported")
    run(0, "report", "--workdir", trained)
    labels = place / "labels\x1b[2J.jsonl"
    names = [f"{sequence}pos" for sequence in SEQUENCES[:2]]
    records = [{"text": f"{text} {i}", "label": names[i % 2]} for i in range(16)]
    labels.write_text("".join(json.dumps(record) + "\n" for record in records))
    tuned = place / "tuned\x1b"
    run(0, "finetune", "--from", trained, "--train", labels, "--workdir", tuned, *TUNING)
    assert re.search(r"\\u.*pos", run(0, "predict", "--workdir", tuned, text))
    run(0, "evaluate", "--workdir", tuned, "--labelled", labels)
    record_property("verbs", 12)
    record_property("control characters on the terminal", 0)


TUNING = ("--task", "classification", "--held-out", "0.25", "data.batch_size=8", "train.steps=2")


def test_pieces_and_tensors_of_an_imported_folder(root, run, tmp_path):
    folder, workdir = tmp_path / "model\x1b[31m", tmp_path / "run\x9b"
    shutil.copytree(root / "tests" / "goldens" / "hf_bert", folder)
    settings = json.loads((folder / "tokenizer.json").read_text())
    plain = [piece for piece in settings["model"]["vocab"] if not piece.startswith("[")]
    names = {piece: f"{piece}{SEQUENCES[i % len(SEQUENCES)]}" for i, piece in enumerate(plain)}
    vocab = {names.get(piece, piece): i for piece, i in settings["model"]["vocab"].items()}
    settings["model"]["vocab"] = vocab
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    run(0, "import", folder, "--workdir", workdir)
    assert "\\u" in run(0, "predict", "--workdir", workdir, "[MASK] [MASK]", "--top", 9)
    shown = run(0, "predict", "--workdir", workdir, "--json", "[MASK] [MASK]", "--top", 9)
    found = str(json.loads(shown.splitlines()[0]))
    assert any(repr(name)[1:-1] in found for name in names.values()), found
    content = (folder / "model.safetensors").read_bytes()
    changed = content.replace(
        b"bert.embeddings.word_embeddings", b"\\u001b[2J.embeddings.word_emb12"
    )
    assert len(changed) == len(content) and changed != content
    (folder / "model.safetensors").write_bytes(changed)
    run(2, "import", folder, "--workdir", tmp_path / "none")


def test_errors(corpus, run, record_property):
    place = corpus.parent
    broken = place / "broken\x1b[31m\nerror: forged.jsonl"
    broken.write_text('{"text": "\x9bK\n')
    refused = [
        ("prepare", broken, "--output", place / "none"),
        ("prepare", place / "absent\x1b.txt", "--output", place / "none"),
        ("describe", "bert_tiny", "model.\x1b[2Jwidth=\x9b1"),
        ("train", place / "no\x1b.json", "--workdir", place / "none"),
        ("predict", "--workdir", place, "x"),
        ("features", "--workdir", place, "--input", broken, "--output", place / "x.npz"),
        ("import", place, "--workdir", place / "none"),
        ("\x1b[31mtrain",),
    ]
    for words in refused:
        shown = run(2, *words)
        assert len([line for line in shown.splitlines() if line.startswith("error: ")]) == 1, shown
    record_property("errors", len(refused))
