import json
import mmap
import os
from types import SimpleNamespace

import numpy as np
import pytest
from etils.epath import backend

from data.store.reader import Store
from data.store.split import MixtureSource
from data.store.writer import StoreWriter, choose_token_dtype
from data.vocabulary.load import read_vocabulary
from tests.local_bucket import Bucket
from tests.small_store import write_store
from tests.store_files import generation_folder


def list_documents(split) -> list[list[list[int]]]:
    """Return the documents of a split as they were given to write_store."""
    starts = split.sentence_starts.tolist()
    documents = []
    for low, high in zip(split.document_starts[:-1], split.document_starts[1:]):
        inside = [at for at in starts if low <= at < high]
        assert inside[0] == low  # each document begins a sentence
        documents.append([split.tokens[a:b].tolist() for a, b in zip(inside, [*inside[1:], high])])
    return documents


def test_a_written_store_is_read_back(store, documents):
    train, held = store.open_split("train"), store.open_split("heldout")
    assert list_documents(train) == documents[:36] and list_documents(held) == documents[36:]
    assert train.tokens.dtype == np.uint16 and isinstance(train.tokens.base.obj, mmap.mmap)
    assert train.document_starts.dtype == train.sentence_starts.dtype == np.int64
    assert train.document_starts[-1] == train.sentence_starts[-1] == len(train.tokens)
    assert train.sources == (MixtureSource("documents", (0, 36), 1.0),) and held.sources == (
        MixtureSource("documents", (0, 4), 1.0),
    )
    with pytest.raises(ValueError, match="read-only"):
        train.tokens[0] = 1


def test_the_vocabulary_is_in_the_store(store, vocabulary):
    assert store.vocabulary == vocabulary and store.manifest["vocabulary"]["size"] == 96


def test_several_sources(tmp_path, vocabulary, documents):
    parts = {"a": documents[:10], "b": documents[10:30], "none": []}
    held = {"b": documents[30:33], "a": documents[33:34]}
    store = write_store(tmp_path / "s", vocabulary, parts, heldout=held)
    train, heldout = store.open_split("train"), store.open_split("heldout")
    assert (
        list_documents(train) == documents[:30]
        and list_documents(heldout) == documents[33:34] + documents[30:33]
    )
    assert [source.documents for source in train.sources] == [(0, 10), (10, 30), (30, 30)]
    assert [source.documents for source in heldout.sources] == [(0, 1), (1, 4), (4, 4)]
    rates = [source.rate for source in train.sources]
    assert rates[0] == pytest.approx(train.document_starts[10] / len(train.tokens)) and sum(
        rates
    ) == pytest.approx(1)
    rated = write_store(tmp_path / "r", vocabulary, parts, rates={"a": 3, "b": 1, "none": 0})
    assert [source.rate for source in rated.open_split("train").sources] == [0.75, 0.25, 0]


def test_empty_parts_can_be_opened(tmp_path, vocabulary):
    split = write_store(tmp_path / "s", vocabulary, []).open_split("heldout")
    assert len(
        split.tokens
    ) == 0 and split.document_starts.tolist() == split.sentence_starts.tolist() == [0]


def test_ids_beyond_16_bits(tmp_path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", *(f"w{i}" for i in range(70_000))])
    )
    large = read_vocabulary(tmp_path / "vocab.txt")
    store = write_store(tmp_path / "s", large, [[[70_001, 3], [65_536]]])
    assert store.open_split("train").tokens.dtype == np.uint32
    assert list_documents(store.open_split("train")) == [[[70_001, 3], [65_536]]]
    for size, dtype in ((1 << 16, "<u2"), ((1 << 16) + 1, "<u4")):
        assert choose_token_dtype(SimpleNamespace(size=size)) == np.dtype(dtype)


@pytest.mark.parametrize("wrong", [[[[96]]], [[[-1]]], [[[5], []]], [[]]])
def test_wrong_ids_are_refused_and_nothing_is_written(tmp_path, vocabulary, wrong):
    with pytest.raises(ValueError, match="ids from|at least one id"):
        write_store(tmp_path / "s", vocabulary, wrong)
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_is_of_the_contents(store, tmp_path, vocabulary, t5_vocabulary, documents):
    again = write_store(tmp_path / "again", vocabulary, documents[:36], heldout=documents[36:])
    other = write_store(tmp_path / "other", vocabulary, documents[:35], heldout=documents[36:])
    words = write_store(tmp_path / "words", t5_vocabulary, documents[:36], heldout=documents[36:])
    assert store.fingerprint == again.fingerprint
    assert len({store.fingerprint, other.fingerprint, words.fingerprint}) == 3


def copy_store(store, folder, vocabulary, documents):
    return write_store(folder / "copy", vocabulary, documents[:36], heldout=documents[36:]).path


def test_no_store_and_broken_stores(tmp_path, store, vocabulary, documents):
    def expect_refusal(error, message):
        with pytest.raises(error, match=message):
            Store.open(path)

    path = tmp_path / "nowhere"
    expect_refusal(FileNotFoundError, "no such folder.*prepare SOURCE... --output")
    path = tmp_path
    expect_refusal(FileNotFoundError, "no manifest.json")
    path = copy_store(store, tmp_path, vocabulary, documents)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text("{")
    expect_refusal(ValueError, "broken")
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 9}))
    expect_refusal(ValueError, "version 9 of the store, this program reads 2")
    (path / "manifest.json").write_text(json.dumps(manifest))
    tokens = generation_folder(path) / "train" / "tokens.bin"
    whole = tokens.read_bytes()
    tokens.write_bytes(whole[:-2])
    expect_refusal(ValueError, r"tokens.bin has [\d,]+ bytes, the manifest says")
    tokens.unlink()
    expect_refusal(ValueError, "tokens.bin is missing")
    tokens.write_bytes(whole)
    with pytest.raises(ValueError, match="split 'test'"):
        Store.open(path).open_split("test")


@pytest.mark.parametrize(
    "change",
    [
        lambda sources: sources.pop(1),  # its documents would be the third's
        lambda sources: sources.reverse(),
        lambda sources: sources.pop(),
    ],
)
def test_sources_that_do_not_follow_one_another_are_refused(
    tmp_path, vocabulary, documents, change
):
    corpus = {"a": documents[:10], "b": documents[10:20], "c": documents[20:30]}
    path = write_store(
        tmp_path / "store", vocabulary, corpus, heldout={name: [] for name in corpus}
    ).path
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest["sources"])
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="is broken: .* do not follow one another up to its 30"):
        Store.open(path)


def test_a_rate_that_no_float_holds_is_refused(tmp_path, vocabulary, documents):
    corpus = {"a": documents[:10], "b": documents[10:20]}
    path = write_store(tmp_path / "store", vocabulary, corpus).path
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["sources"][0]["rate"] = 10**400
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="is broken: sources has .* not a name, a rate"):
        Store.open(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["a named pipe", "a device"])
@pytest.mark.parametrize("name", ["train/extra.bin", "readers"])
def test_what_is_no_regular_file_is_not_read(tmp_path, store, vocabulary, documents, name, kind):
    path = copy_store(store, tmp_path, vocabulary, documents)
    manifest, file = (
        json.loads((path / "manifest.json").read_text()),
        generation_folder(path) / name,
    )
    if name == "readers":
        file.unlink()
    else:
        manifest["files"][name] = {"bytes": 0, "crc32c": "00000000"}
        (path / "manifest.json").write_text(json.dumps(manifest))
    if kind == "a device":
        file.symlink_to("/dev/zero")
    else:
        os.mkfifo(file)
    with pytest.raises(ValueError, match=f"{file}: is {kind}; expected a regular file"):
        Store.open(path).verify_or_salvage("refuse")


@pytest.mark.timeout(20)
def test_checksums_in_a_pipe_are_missing(tmp_path, store, vocabulary, documents):
    path = copy_store(store, tmp_path, vocabulary, documents)
    manifest, folder = json.loads((path / "manifest.json").read_text()), generation_folder(path)
    del manifest["files"]["checksums/train.tokens.bin"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    (folder / "checksums" / "train.tokens.bin").unlink()
    os.mkfifo(folder / "checksums" / "train.tokens.bin")
    tokens = folder / "train" / "tokens.bin"
    tokens.write_bytes(tokens.read_bytes()[::-1])
    with pytest.raises(ValueError, match="tokens.bin: .* checksums of its blocks are missing"):
        Store.open(path).verify_or_salvage("skip")


@pytest.mark.parametrize(
    "name",
    ["train/tokens.bin", "train/documents.bin", "heldout/sentences.bin", "vocabulary/spiece.model"],
)
def test_verify_finds_a_flipped_bit(tmp_path, store, vocabulary, documents, name):
    store.verify_checksums()
    path = copy_store(store, tmp_path, vocabulary, documents)
    contents = bytearray((generation_folder(path) / name).read_bytes())
    contents[len(contents) // 2] ^= 1
    (generation_folder(path) / name).write_bytes(contents)
    with pytest.raises(ValueError, match=f"{name}: crc32c"):
        Store.open(path).verify_checksums()


def test_another_vocabulary_in_the_folder_is_refused(
    tmp_path, store, vocabulary, t5_vocabulary, documents
):
    path = copy_store(store, tmp_path, vocabulary, documents)
    t5_vocabulary.save(tmp_path / "t5")
    manifest = json.loads((path / "manifest.json").read_text())
    for file in (generation_folder(path) / "vocabulary").iterdir():
        contents = (tmp_path / "t5" / file.name).read_bytes()
        file.write_bytes(contents)
        manifest["files"][f"vocabulary/{file.name}"]["bytes"] = len(contents)
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the store was written with"):
        _ = Store.open(path).vocabulary


def test_the_writer_refuses_lengths_that_do_not_add_up(tmp_path, vocabulary):
    with StoreWriter(tmp_path / "s", vocabulary) as writer:
        writer.begin_source("a")
        with pytest.raises(ValueError, match="3 tokens, but 4 in documents"):
            writer.add_documents("train", np.array([5, 6, 7]), np.array([4]), np.array([3]))


def test_a_store_in_a_bucket_is_copied_once_but_for_its_tokens(
    tmp_path, store, vocabulary, documents, monkeypatch
):
    monkeypatch.setattr(backend, "tf_backend", Bucket(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = copy_store(store, tmp_path, vocabulary, documents)
    remote = Store.open("gs://bucket/copy")
    assert remote.fingerprint == store.fingerprint and remote.vocabulary == vocabulary
    assert list_documents(remote.open_split("train")) == documents[:36]
    assert remote.folder.is_relative_to(tmp_path / "cache" / "cloze")
    (generation_folder(path) / "train" / "documents.bin").unlink()
    assert Store.open("gs://bucket/copy").folder == remote.folder
    with pytest.raises(FileNotFoundError, match="gs://bucket/other is not a token store"):
        Store.open("gs://bucket/other")
    assert [p.name for p in (tmp_path / "cache" / "cloze" / "stores").iterdir()] == [
        remote.folder.name
    ]
