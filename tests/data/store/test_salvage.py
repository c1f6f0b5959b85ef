"""A damaged store without its damaged documents equals a store that never had them."""

import itertools
import json
import os
import shutil

import google_crc32c
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm, SentencePair
from data.pipeline import Stream
from data.source import describe_omissions
from data.store import salvage, writer
from data.store.reader import Store
from tests.small_store import write_store
from tests.store_files import generation_folder

BLOCK = 64  # so that damage hits few of few documents


@pytest.fixture(scope="module")
def corpus(vocabulary):
    """Return {source: documents}, each a list of sentences of ids."""
    rng = np.random.default_rng(15)

    def draw_sentences():
        return [
            rng.integers(10, vocabulary.size, rng.integers(1, 12)).tolist()
            for _ in range(rng.integers(1, 5))
        ]

    return {
        name: [draw_sentences() for _ in range(count)] for name, count in (("a", 120), ("b", 60))
    }


@pytest.fixture
def blocks(monkeypatch):
    for module in (salvage, writer):
        monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def path(tmp_path, corpus, vocabulary, blocks):
    return write_store(
        tmp_path / "store",
        vocabulary,
        corpus,
        heldout={name: part[:9] for name, part in corpus.items()},
        rates={"a": 0.5, "b": 0.5},
    ).path


def flip_bit(path, place):
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0x40
    path.write_bytes(raw)


def nest_sentences(split):
    """Return the ids by [document][sentence]."""
    starts, ends = np.asarray(split.sentence_starts), np.asarray(split.document_starts)
    tokens = np.take(split.tokens, np.arange(len(split.tokens)), mode="clip")
    sentences = [tokens[low:high].tolist() for low, high in itertools.pairwise(starts)]
    edges = np.searchsorted(starts, ends)
    return [sentences[low:high] for low, high in itertools.pairwise(edges)]


def test_any_damage_leaves_the_other_documents_as_they_were(
    path, corpus, record_property, tmp_path
):
    documents, rng = [*corpus["a"], *corpus["b"]], np.random.default_rng(3)
    flat = {"train": documents, "heldout": [*corpus["a"][:9], *corpus["b"][:9]]}
    for _ in range(1000 if os.environ.get("CLOZE_BOARD") == "whole" else 40):
        copy = shutil.copytree(path, tmp_path / "copy")
        hit = {}
        for _ in range(rng.integers(1, 4)):
            split, file = (
                rng.choice(["train", "heldout"]),
                rng.choice(["tokens", "documents", "sentences"]),
            )
            size = (generation_folder(copy) / split / f"{file}.bin").stat().st_size
            flip_bit(generation_folder(copy) / split / f"{file}.bin", at := int(rng.integers(size)))
            hit.setdefault(split, []).append(
                (file, at // BLOCK * BLOCK, min((at // BLOCK + 1) * BLOCK, size))
            )
        store = Store.open(copy).verify_or_salvage("skip")
        for split in ("train", "heldout"):
            whole = Store.open(path).open_split(split)
            lost = store.skipped_documents[split].tolist()
            assert lost == expected_loss(whole, hit.get(split, []))
            left = [document for i, document in enumerate(flat[split]) if i not in set(lost)]
            assert nest_sentences(store.open_split(split)) == left
            sizes = [
                sum(i not in lost for i in range(*source.documents)) for source in whole.sources
            ]
            assert [
                hi - lo
                for lo, hi in (source.documents for source in store.open_split(split).sources)
            ] == sizes
            record_property("documents lost", len(lost))
        record_property("stores damaged", 1)
        shutil.rmtree(copy)


def expected_loss(split, hits):
    """Find documents with a damaged token, a damaged border, or a damaged sentence border nearby,
    one by one.
    """
    starts, cuts = split.document_starts.tolist(), split.sentence_starts.tolist()
    sizes = {"tokens": split.tokens.dtype.itemsize, "documents": 8, "sentences": 8}
    damaged = {
        file: {
            i for name, lo, hi in hits if name == file for i in range(lo // size, -(-hi // size))
        }
        for file, size in sizes.items()
    }
    damaged["documents"] -= {0, len(starts) - 1}
    damaged["sentences"] -= {0, len(cuts) - 1}
    near = set(damaged["tokens"])
    for i in damaged["sentences"]:
        left = max(j for j in range(i) if j not in damaged["sentences"])
        right = min(j for j in range(i + 1, len(cuts)) if j not in damaged["sentences"])
        near |= set(range(cuts[left], cuts[right]))
    return [
        i
        for i in range(len(starts) - 1)
        if {i, i + 1} & damaged["documents"] or near & set(range(starts[i], starts[i + 1]))
    ]


@pytest.mark.parametrize(
    "objective",
    [
        MaskedLm(16, 3),
        MaskedLm(16, 3, rows="windows"),
        MaskedLm(16, 3, rows="sentences"),
        MaskedLm(16, 3, rows="packed"),
        SentencePair(32, 5),
        CausalLm(16, end_of_text=False),
    ],
    ids=repr,
)
def test_batches_are_those_of_a_store_that_never_had_them(
    path, corpus, vocabulary, tmp_path, objective
):
    for at in (0, 700, 701, 1500, 3000):
        flip_bit(generation_folder(path) / "train" / "tokens.bin", at)
    store = Store.open(path).verify_or_salvage("skip")
    lost = set(store.skipped_documents["train"].tolist())
    assert 0 < len(lost) < 40 and not store.skipped_documents["heldout"].size
    left = {
        "a": [d for i, d in enumerate(corpus["a"]) if i not in lost],
        "b": [d for i, d in enumerate(corpus["b"], 120) if i not in lost],
    }
    never = write_store(tmp_path / "never", vocabulary, left, rates={"a": 0.5, "b": 0.5})
    mine, other = (
        Stream(one, Data(objective=objective, batch_size=16), seed=1) for one in (store, never)
    )
    assert mine.num_rows == other.num_rows
    for step in (0, 1, 20):
        batch, expected = mine.build_batch(step), other.build_batch(step)
        for key, value in expected.items():
            np.testing.assert_array_equal(batch[key], value)


def test_ambiguous_damage_is_refused(path, tmp_path):
    assert (
        Store.open(path).verify_or_salvage("skip").manifest
        == Store.open(path).verify_or_salvage("refuse").manifest
        and describe_omissions(Store.open(path)) == "no documents"
    )

    def expect_refusal(message, how="skip"):
        with pytest.raises(ValueError, match=message):
            Store.open(copy).verify_or_salvage(how)
        shutil.rmtree(copy)

    copy = shutil.copytree(path, tmp_path / "copy")
    flip_bit(generation_folder(copy) / "train" / "tokens.bin", 5)
    expect_refusal(
        "train/tokens.bin: crc32c .*; or leave the damaged documents out with data.on_corrupt=skip",
        "refuse",
    )
    shutil.copytree(path, copy)
    flip_bit(generation_folder(copy) / "vocabulary" / "spiece.model", 50)
    expect_refusal("without it no document can be read")
    shutil.copytree(path, copy)
    flip_bit(generation_folder(copy) / "train" / "tokens.bin", 5)
    flip_bit(generation_folder(copy) / "checksums" / "train.tokens.bin", 5)
    expect_refusal("the checksums of its blocks are damaged, too: copy it again")
    shutil.copytree(path, copy)
    flip_bit(generation_folder(copy) / "checksums" / "train.tokens.bin", 5)
    assert (
        describe_omissions(Store.open(copy).verify_or_salvage("skip")) == "no documents"
    )  # the region around it is intact
    flip_bit(generation_folder(copy) / "train" / "sentences.bin", 100)
    assert "of train documents (" in describe_omissions(Store.open(copy).verify_or_salvage("skip"))


def test_a_store_from_before_there_were_checksums_of_blocks_is_read_and_refused_when_damaged(path):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"] = {
        name: entry
        for name, entry in manifest["files"].items()
        if not name.startswith("checksums/")
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(generation_folder(path) / "checksums")
    store = Store.open(path).verify_or_salvage("skip")
    assert type(store) is Store
    flip_bit(generation_folder(path) / "train" / "tokens.bin", 5)
    with pytest.raises(
        ValueError,
        match="the checksums of its blocks are missing: copy it again",
    ):
        Store.open(path).verify_or_salvage("skip")


def test_checksums_are_of_blocks_however_the_file_was_written(tmp_path, blocks):
    file = writer._BlockedFile(tmp_path / "a", writer._ChecksumFile(tmp_path / "b"))
    whole = np.arange(100, dtype="<i8")
    for lo, hi in ((0, 3), (3, 3), (3, 50), (50, 51), (51, 100)):
        file.write(whole[lo:hi])
    file.close()
    raw = (tmp_path / "a").read_bytes()
    sums = [google_crc32c.value(raw[at : at + BLOCK]) for at in range(0, len(raw), BLOCK)]
    assert (
        raw == whole.tobytes()
        and np.fromfile(tmp_path / "b", "<u4").tolist() == sums
        and file.close()["bytes"] == 800
    )


def test_a_slice_of_spliced_tokens_reads_no_others():
    class Numbers:
        """The token i of 2**45 is i."""

        dtype = np.dtype(np.int64)

        def __len__(self):
            return 1 << 45

        def take(self, index, axis=None, out=None, mode="raise"):
            return index

    spliced = salvage.SplicedTokens(Numbers(), np.array([[5, 7]]))
    np.testing.assert_array_equal(spliced[3:8], [3, 4, 7, 8, 9])
    np.testing.assert_array_equal(spliced[: -(2**45) + 8], np.array([0, 1, 2, 3, 4, 7]))
