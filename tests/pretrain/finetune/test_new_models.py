"""`finetune --config`: a new encoder of words from labelled texts alone, its vocabulary and the word
vectors that one brings; and every error in them.
"""

import dataclasses
import gzip
import json
import re

import numpy as np
import pytest

from data.config import Data
from data.examples.labelled_examples import Example
from data.examples.labelled_store import write_labelled
from data.objectives import Classification
from data.vocabulary.load import load_vocabulary
from data.vocabulary.word_level import make_word_vocabulary
from data.vocabulary.word_vectors import fill_embeddings, read_word_vectors
from models.config.classifier import ClassifierConfig
from pretrain.__main__ import main
from pretrain.config import AdamW, Checkpoint, ConfigError, Evaluate, Run, Train, load
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.conftest import WORD_ENCODERS
from tests.pretrain.training.recurrent_runs import check_killed_run

WORDS = "the a fox dog river stone runs sees near old".split()
TINY = ["data.batch_size=32", "data.objective.length=12", "data.threads=1"]


def make_rows(count, seed):
    """Return texts whose label is whether they name a fox."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 2 + int(rng.integers(5)))) for _ in range(count)]
    return [{"text": text, "label": "fox" if "fox" in text else "none"} for text in texts]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return {name: file of labelled texts}."""
    folder, found = tmp_path_factory.mktemp("files"), {}
    for name, count, seed in (("train", 400, 0), ("heldout", 100, 1)):
        rows = make_rows(count, seed)
        found[name] = folder / f"{name}.jsonl"
        found[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def finetune(files, workdir, *words, config="textcnn", task="classification"):
    return main(
        ["finetune", "--config", config, "--task", task, "--train", str(files["train"])]
        + ["--heldout", str(files["heldout"]), "--workdir", str(workdir), *words]
    )


SMALL = ["model.encoder.width=12", "model.encoder.filters=6"]


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """Return a workdir of a small TextCNN."""
    workdir = tmp_path_factory.mktemp("trained") / "w"
    words = [*TINY, *SMALL, "--epochs", "8", "optimizer.learning_rate=1e-2"]
    assert finetune(files, workdir, *words) == 0
    return workdir


@pytest.mark.more
def test_a_new_model_learns_and_every_verb_takes_it(trained, files, tmp_path, capsys):
    run = Workdir.open(trained).run
    assert run.model.encoder.width == 12 and run.model.dropout == 0.5
    assert run.model.labels == ("fox", "none") and run.train.steps == 13 * 8
    vocabulary = load_vocabulary(trained / "vocabulary")
    assert vocabulary.size == run.model.vocab == 4 + len(WORDS)
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep) == (0, 1, 2, 3)
    capsys.readouterr()
    labelled = ["--labelled", str(files["heldout"]), "--json"]
    assert main(["evaluate", "--workdir", str(trained), *labelled]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
    assert main(["predict", "--workdir", str(trained), "an old fox", "an unseen cat"]) == 0
    assert re.findall(r"% +(\w+)", capsys.readouterr().out) == ["fox", "none"]
    output = tmp_path / "exported"
    verb = ["export", "--workdir", str(trained), "--output", str(output)]
    assert main([*verb, "--format", "jax"]) == 0
    assert (output / "models" / "textcnn.py").exists()
    assert main([*verb[:-1], str(tmp_path / "hf")]) == 2
    assert "transformers has no convolutional classifier" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        ["attention", "--output", "OUT", "a fox"],
        ["features", "--output", "OUT", "--input", "IN"],
    ],
    ids=lambda verb: verb[0],
)
def test_verbs_of_attention_refuse_it(trained, files, tmp_path, capsys, verb):
    output = tmp_path / "x.npz" if verb[0] == "features" else tmp_path / "x.html"
    places = {"OUT": str(output), "IN": str(files["heldout"])}
    words = [places.get(word, word) for word in verb]
    assert main([words[0], "--workdir", str(trained), *words[1:]]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a TextCnnConfig has no layers of attention" in line
    assert not output.exists()


def test_the_same_command_continues_a_run_and_seeds_differ(files, tmp_path, capsys):
    words = [*TINY, "model.encoder.width=4", "model.encoder.hidden=4", "--epochs", "1"]
    first = [*words, "train.stop_at_step=3", "--seeds", "2"]
    assert finetune(files, tmp_path / "w", *first, config="dan") == 0
    assert "stopped at step 3 of 13" in capsys.readouterr().out
    assert finetune(files, tmp_path / "w", *words, "--seeds", "2", config="dan") == 0
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("continuing after step 3") == 2
    assert "2 seeds: accuracy" in printed.out
    notice = "this model will have no Hugging Face folder: transformers has no deep averaging"
    assert printed.err.count(notice) == 1  # before the first run
    tables = [
        open_trained(tmp_path / "w" / name).params["encoder"]["layer_0"]["kernel"]
        for name in ("seed-0", "seed-1")
    ]
    assert not np.array_equal(*tables)


# ---- vectors -------------------------------------------------------------------


def write_vectors(path, vectors, header=True):
    """Write vectors as word2vec's text format."""
    width = len(next(iter(vectors.values())))
    lines = [f"{len(vectors)} {width}"] if header else []
    lines += [f"{word} {' '.join(map(str, vector))}" for word, vector in vectors.items()]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


VECTORS = {
    word: [round(0.1 * i, 1), 1.0, -2.0, 0.5] for i, word in enumerate((*WORDS[:6], "unused"))
}


@pytest.mark.held_by(1)
@pytest.mark.parametrize("channels", ["static", "multichannel"])
def test_words_begin_with_the_vectors_and_static_ones_stay(files, tmp_path, capsys, channels):
    path = write_vectors(tmp_path / "v.vec.gz", VECTORS)
    words = [*TINY, f"model.encoder.channels={channels}", "model.encoder.filters=4"]
    words += ["model.encoder.width=4", "--vectors", str(path), "--epochs", "1"]
    assert finetune(files, tmp_path / "w", *words) == 0
    assert "but for the vectors of 6 of 14 words" in capsys.readouterr().out
    vocabulary = load_vocabulary(tmp_path / "w" / "vocabulary")
    ids = [vocabulary.pieces.index(word) for word in WORDS[:6]]
    expected = np.array([VECTORS[word] for word in WORDS[:6]], np.float32)
    end = open_trained(tmp_path / "w").params["encoder"]["embeddings"]
    np.testing.assert_array_equal(end["static_embedding"]["embedding"][np.array(ids)], expected)
    if channels == "multichannel":
        tuned = end["token_embedding"]["embedding"][np.array(ids)]
        difference = np.abs(tuned - expected).max()
        assert 0 < difference < 0.1


def test_words_without_a_vector_have_the_variance_of_those_with_one():
    """Kim 2014, section 3.2."""
    vocabulary = make_word_vocabulary([" ".join(f"w{i}" for i in range(500))])
    rng = np.random.default_rng(0)
    vectors = {f"w{i}": rng.normal(0, 3, 20).astype(np.float32) for i in range(250)}
    table = rng.uniform(-0.25, 0.25, (504, 20)).astype(np.float32)
    filled = fill_embeddings(table, vocabulary, vectors)
    has_vector = np.array([piece in vectors for piece in vocabulary.pieces])
    np.testing.assert_array_equal(filled[vocabulary.pieces.index("w7")], vectors["w7"])
    assert abs(filled[~has_vector].std() / 3 - 1) < 0.05
    assert filled.dtype == np.float32


def test_forms_of_vector_files(tmp_path):
    expected = {word: np.array(vector, np.float32) for word, vector in VECTORS.items()}
    for name, header in (("a.txt", True), ("b.txt", False), ("c.txt.gz", True)):
        path = write_vectors(tmp_path / name, VECTORS, header)
        found = read_word_vectors(path, 4, (*WORDS, "unused"))
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[word], expected[word]) for word in found)
    other = tmp_path / "other.txt"  # a word with blanks; of a word that occurs twice, the first
    other.write_text("x 0 0\na b c 1 2\nx 3 4\n")
    found = read_word_vectors(other, 2, {"x", "a b c"})
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "x": [0, 0],
        "a b c": [1, 2],
    }
    assert read_word_vectors(other, 2, {"x"}).keys() == {"x"}


# ---- errors --------------------------------------------------------------------


def refuse(capsys, workdir, status):
    """Return the one line of an error, before which nothing was written."""
    assert status == 2 and not workdir.exists()
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 5\nthe 1 2 3 4 5\n", ":1: vectors of 5 numbers, and the model's words have 4: set "
         "model.encoder.width=5"),
        ("3 ²\nthe 1 2 3 4\n", ":1: vectors of 1 numbers, .* model.encoder.width=1"),
        ("the 1 2 3\n", ":1: vectors of 3 numbers, .* model.encoder.width=3"),
        ("the 1 2 3 4\nfox 1 2\n", ":2: a word and 4 numbers are expected"),
        ("the 1 2 3 4\nfox 1 2 x 4\n", ":2: a word and 4 numbers are expected .*'x'"),
        ("the 1 2 3 4\nfox 1 2 nan 4\n", ":2: the vector of 'fox' has a number that is not finite"),
        ("", ": has no word vectors"),
        ("THE 1 2 3 4\n", ": none of its 1 words is one of the 10 of the texts"),
        (b"\xff\xfd\x00binary", ":1: not UTF-8"),
    ],
)  # fmt: skip
def test_damaged_vectors_are_refused(files, tmp_path, capsys, text, message):
    path = tmp_path / "v.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    words = ["--vectors", str(path), "model.encoder.width=4"]
    status = finetune(files, tmp_path / "w", *words)
    assert re.search(re.escape(str(path)) + message, refuse(capsys, tmp_path / "w", status))


def test_a_cut_off_gzip_file_and_an_absent_one_are_refused(files, tmp_path, capsys):
    path = write_vectors(tmp_path / "v.gz", VECTORS)
    path.write_bytes(path.read_bytes()[:-9])
    status = finetune(files, tmp_path / "w", "--vectors", str(path), "model.encoder.width=4")
    assert "v.gz: the gzip file is broken or cut off" in refuse(capsys, tmp_path / "w", status)
    status = finetune(files, tmp_path / "w", "--vectors", str(tmp_path / "none"))
    assert "none: no such file" in refuse(capsys, tmp_path / "w", status)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "3"], "--step 3 is a checkpoint of --from; a new model has none"),
        (["--min-count", "0"], "--min-count 0: must be at least 1"),
        (["--min-count", "9999"], "none of the 10 words occurs 9,999 times"),
        (["model.encoder.windows=3,3"], "windows are (3, 3)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(files, tmp_path, capsys, words, message):
    assert message in refuse(capsys, tmp_path / "w", finetune(files, tmp_path / "w", *words))


def test_options_of_new_models_need_one(files, tmp_path, capsys):
    command = ["finetune", "--from", "w", "--task", "classification", "--workdir", "x"]
    assert main([*command, "--train", str(files["train"]), "--vectors", "v.txt"]) == 2
    assert "--vectors v.txt is for a new model: give --config NAME" in capsys.readouterr().err


def test_a_task_without_labelled_texts_is_refused(files, tmp_path, capsys):
    status = finetune(files, tmp_path / "w", "--columns", "text,label", task="text2text")
    line = refuse(capsys, tmp_path / "w", status)
    assert "--config textcnn: a new model learns one task of labelled texts" in line


def test_a_label_without_a_text_is_refused(files, tmp_path, capsys):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "a fox", "label": "fox"}\n{"text": " ", "label": "none"}\n')
    status = finetune(files | {"train": broken}, tmp_path / "w")
    assert "broken.jsonl:2" in refuse(capsys, tmp_path / "w", status)


def test_an_encoder_of_words_has_no_objective_of_its_own():
    with pytest.raises(ConfigError, match="TextCnnConfig is trained with a head, by `finetune --c"):
        load("textcnn", ["model=TextCnnConfig"])


# ---- interrupted runs ----------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("name", ["deep_averaging", "textcnn", "recurrent_encoder"])
def test_a_run_that_is_killed_ends_with_the_same_bits(request, name, tmp_path):
    if name != "recurrent_encoder":
        request.getfixturevalue("whole")
    rows = make_rows(80, 2)
    vocabulary = make_word_vocabulary(row["text"] for row in rows)
    examples = [Example((row["text"],), row["label"], "") for row in rows]
    parts = {"train": examples[:64], "heldout": examples[64:]}
    write_labelled(tmp_path / "store", vocabulary, parts, ("fox", "none"))
    encoder = dataclasses.replace(WORD_ENCODERS[name], dropout=0.1)
    run = Run(
        model=ClassifierConfig(encoder=encoder, labels=("fox", "none"), dropout=0.3),
        data=Data(objective=Classification(length=12), store=str(tmp_path / "store"), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    check_killed_run(run, tmp_path)


# ---- the vocabulary ------------------------------------------------------------


def test_words_are_counted_and_come_back(tmp_path):
    texts = ["b b a c ,", "a b [CLS] d's", "É"]
    vocabulary = make_word_vocabulary(texts, 1)
    assert vocabulary.pieces == (
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]"), "b", "a", ",", "c", "d's", "É"
    )  # fmt: skip
    assert make_word_vocabulary(texts, 2, {"c", "absent"}).pieces[4:] == ("b", "a", "c")
    assert vocabulary.encode("a  b [CLS] x d's b.") == [5, 4, 1, 1, 8, 1]
    vocabulary.save(tmp_path / "v")
    again = load_vocabulary(tmp_path / "v")
    assert again == vocabulary and again.encode("a b") == [5, 4]
    assert again.decode([5, 4, 2]) == "a b [CLS]"
