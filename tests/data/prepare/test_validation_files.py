"""`prepare --validation`: the held-out split is the documents of these sources and no others."""

import dataclasses

import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.summary import format_summary
from data.store.reader import Store
from pretrain.__main__ import main
from tests.data.prepare.test_prepare import hash_files, texts_of

pytestmark = pytest.mark.fast


@pytest.fixture
def files(tmp_path, texts):
    """Return {name: documents} of two files for training and two for validation, written."""
    documents = {
        "a.txt": texts[:9],
        "b.txt": texts[9:14],
        "c.txt": texts[14:17],
        "d.txt": texts[17:19],
    }
    for name, lines in documents.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    return {str(tmp_path / name): lines for name, lines in documents.items()}


@pytest.fixture
def request_of(words, files):
    def make(training=2, **options):
        names = tuple(files)
        options = {"vocabulary": words, "held_out": 0.0, "document": "record"} | options
        return PrepareRequest(names[:training], validation=names[training:], **options)

    return make


def test_the_splits_are_the_files(files, request_of, tmp_path):
    prepared = prepare_store(request_of(), tmp_path / "store")
    store, lines = prepared.store, list(files.values())
    store.verify_checksums()

    def read(documents):
        ids = store.vocabulary.encode_batch([text for part in documents for text in part])
        return [store.vocabulary.decode(own) for own in ids]

    assert texts_of(store, "train") == read(lines[:2])
    assert texts_of(store, "heldout") == read(lines[2:])
    sources = store.manifest["sources"]
    assert [source["name"] for source in sources] == [*files]
    assert [source["heldout"]["documents"] for source in sources] == [
        [0, 0],
        [0, 0],
        [0, 3],
        [3, 5],
    ]
    assert [source["rate"] for source in sources][2:] == [0, 0]
    assert sum(source["rate"] for source in sources) == pytest.approx(1)
    assert store.manifest["request"]["validation"] == [*files][2:]
    assert store.manifest["held_out"]["files"] == [*files][2:]
    assert [entry["name"] for entry in store.manifest["inputs"]][:4] == [*files]
    summary = "\n".join(format_summary(prepared))
    for words in ("14 documents", "5 documents", "c.txt: 0 training documents, 3 held out, rate 0"):
        assert words in summary
    assert prepare_store(request_of(), tmp_path / "store").existed


def test_training_reads_the_other_sources_alone(request_of, tmp_path):
    """Batches are as from a store without validation."""
    request = request_of(vocabulary=None, vocab_size=60, layout="gpt")
    store = prepare_store(request, tmp_path / "store").store
    alone = prepare_store(dataclasses.replace(request, validation=None), tmp_path / "alone").store
    data = Data(objective=CausalLm(length=4), batch_size=4)
    stream, other = Stream(store, data, seed=1), Stream(alone, data, seed=1)
    for step in range(6):
        np.testing.assert_equal(stream.build_batch(step), other.build_batch(step))


def test_processes_change_nothing_and_the_vocabulary_has_no_held_out_text(request_of, tmp_path):
    request = request_of(1, vocabulary=None, vocab_size=60)
    prepare_store(request, tmp_path / "one")
    prepare_store(request, tmp_path / "two", job_bytes=40)
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")
    alone = dataclasses.replace(request, validation=None)
    store, other = (
        Store.open(tmp_path / "one"),
        prepare_store(alone, tmp_path / "alone").store,
    )
    assert store.vocabulary == other.vocabulary
    assert texts_of(store, "train") == texts_of(other, "train")


@pytest.mark.slow
def test_local_processes(request_of, tmp_path):
    prepare_store(request_of(), tmp_path / "one")
    prepare_store(request_of(), tmp_path / "two", workers=2, job_bytes=40)
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")


def test_pairs(tmp_path, words):
    """The files for validation have pairs, too; the command line records both."""
    (tmp_path / "a.tsv").write_text("the fox\tthe dog\nthe dog\tthe fox\n")
    (tmp_path / "b.tsv").write_text("the dog walks\tthe fox walks\n")
    argv = ["prepare", str(tmp_path / "a.tsv"), "--document", "pair", "--vocabulary", words]
    argv += ["--validation", str(tmp_path / "b.tsv"), "--output", str(tmp_path / "store")]
    assert main(argv) == 0
    store = Store.open(tmp_path / "store")
    counts = {name: split["documents"] for name, split in store.manifest["splits"].items()}
    assert counts == {"train": 2, "heldout": 1}
    assert len(store.open_split("heldout").sentence_starts) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out": 0.1}, "--held-out 0.1 with --validation .*d.txt: the held-out split is either"),
        ({"validation": ("a.txt",)}, "a source is given twice: a.txt b.txt a.txt"),
        ({"validation": (".",)}, "a.txt is in the source a.txt and in --validation .: a model must"),
        ({"validation": ("linked",)}, "linked/e.txt is in the source b.txt and in --validation linked: a model must"),
        ({"sources": ("sub", "sub/")}, "sub/e.txt is in two sources, sub and sub/: its text would"),
        ({"validation": ("c.txt", "./c.txt")}, "c.txt and ./c.txt: .* count twice; name it once$"),
        ({"validation": ("./sub/../b.txt",)}, "b.txt is in the source b.txt and in --validation"),
        ({"validation": ("empty.txt",)}, "--validation empty.txt: there is no text in it"),
        ({"sources": ("empty.txt",)}, "empty.txt has nothing to train on: there is no text in it"),
        ({"validation": ("none.txt",)}, "none.txt: no such file or folder"),
        ({"validation": ("e.md",)}, "e.md: a source ends in .txt"),
        ({"rates": (1.0, 2.0, 3.0)}, "3 rates for 2 sources"),
    ],
)  # fmt: skip
def test_errors(files, request_of, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "e.md").write_text("text\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "e.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.txt").write_text("text\n")
    request = dataclasses.replace(request_of(), sources=("a.txt", "b.txt"))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        prepare_store(dataclasses.replace(request, **options), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_store_with_other_held_out_files_is_not_taken_for_the_one_requested(request_of, tmp_path):
    store = tmp_path / "store"
    prepare_store(request_of(), store)
    without = dataclasses.replace(request_of(), validation=None)
    with pytest.raises(FileExistsError, match=r"validation: \[.*in the store, None requested"):
        prepare_store(without, store)
    prepare_store(without, tmp_path / "other")
    with pytest.raises(FileExistsError, match="validation: None in the store"):
        prepare_store(request_of(), tmp_path / "other")
