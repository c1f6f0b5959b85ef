"""Every file of a token store is byte-identical across versions, for each vocabulary and kind of
document.

A manifest holds no version of a library. It identifies a source by the names, sizes and times of its
files, so these have a fixed time here and are named from within their folder.
"""

import hashlib
import json
import os

import pytest

from data.examples import labelled_examples, labelled_store, qa_store, tagged_sentences
from data.examples.qa import Question
from data.examples.text_pairs import write_pairs
from data.objectives import Text2Text
from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest
from data.store.manifest import READERS_FILE
from data.vocabulary.load import load_vocabulary
from tests.pinned import check_pinned, hash_files, make_vocabularies

WORDS = "The quick reader, left words. A cloze test; is it 10 or 100 gaps? naïve Straße 東京 — 🙂 unseen ჯ the, them.".split()
VOCABULARIES = (
    "unigram", "bpe", "t5", "wordpiece", "byte_bpe", "word_bpe", "tokenizer_json",
    "albert_json",
)  # fmt: skip


def make_sentence(i: int) -> str:
    """Return a sentence of two to ten words."""
    return (
        " ".join(WORDS[(i * i + 3 * i * j + j * j + j) % len(WORDS)] for j in range(2 + i % 9))
        + "."
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write a folder with text in blocks, records and pairs, and a saved vocabulary of each kind."""
    folder = tmp_path_factory.mktemp("corpus")
    bodies = [" ".join(make_sentence(7 * i + j) for j in range(1 + i % 5)) for i in range(60)]
    (folder / "blocks.txt").write_text("\n\n".join(bodies[:40]), encoding="utf-8")
    (folder / "records.jsonl").write_text(
        "".join(json.dumps({"text": body}) + "\n" for body in bodies[40:]), encoding="utf-8"
    )
    pairs = ({"source": make_sentence(i), "target": make_sentence(3 * i + 1)} for i in range(40))
    (folder / "pairs.jsonl").write_text(
        "".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8"
    )
    for path in folder.iterdir():
        os.utime(path, (10**9, 10**9))
    (folder / "made").mkdir()
    for name, (_, vocabulary) in make_vocabularies(folder / "made").items():
        vocabulary.save(folder / name)
    return folder


@pytest.fixture(scope="module")
def wordpiece(corpus):
    return load_vocabulary(corpus / "wordpiece")


def check_store(case, store):
    store.verify_checksums()
    found = hash_files(store.folder)
    assert found.pop(READERS_FILE) == hashlib.sha256(b"").hexdigest()[:16]
    # The manifest as pinned, without the later entries.
    manifest = store.manifest | {"version": 1}
    assert manifest.pop("generation") == store.folder.name
    manifest.pop("text_by_source", None)
    text = json.dumps(manifest, indent=1) + "\n"
    found["manifest.json"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    check_pinned("store", case, found)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_prepared_corpus_is_unchanged(corpus, monkeypatch, tmp_path, name):
    monkeypatch.chdir(corpus)
    request = PrepareRequest(
        ("blocks.txt", "records.jsonl"),
        vocabulary=name,
        held_out=0.2,
        document="block",
        temperature=0.7,
    )
    check_store(name, prepare_store(request, tmp_path / "store", job_bytes=1000).store)


def test_prepared_pairs_are_unchanged(corpus, monkeypatch, tmp_path):
    monkeypatch.chdir(corpus)
    request = PrepareRequest(
        ("pairs.jsonl",), vocabulary="t5", held_out=0.1, document="pair", field="source,target"
    )
    check_store("pairs", prepare_store(request, tmp_path / "store").store)


def test_stores_of_examples_are_unchanged(wordpiece, tmp_path):
    examples = [
        labelled_examples.Example(
            (make_sentence(i), make_sentence(i + 60)),
            ("no", "yes", "so")[i * i % 7 % 3],
            f"here:{i}",
        )
        for i in range(30)
    ]
    parts = {"train": examples[:24], "heldout": examples[24:]}
    check_store(
        "labelled",
        labelled_store.write_labelled(tmp_path / "labelled", wordpiece, parts, ("no", "so", "yes")),
    )
    words = [tuple(make_sentence(i).split()) for i in range(30)]
    sentences = [
        tagged_sentences.Sentence(
            one, tuple(("O", "B-a", "I-a")[i % 3] for i in range(len(one))), "here", 1, 1
        )
        for one in words
    ]
    parts = {"train": sentences[:24], "heldout": sentences[24:]}
    check_store(
        "tagged",
        tagged_sentences.write_tagged(tmp_path / "tagged", wordpiece, parts, ("B-a", "I-a", "O")),
    )


def test_stores_of_answers_are_unchanged(wordpiece, tmp_path):
    questions = []
    for i in range(24):
        context = " ".join(make_sentence(i // 3 + j) for j in range(3))
        start = context.index(" ", i) + 1
        answer = context[start:].split()[0]
        questions.append(
            Question(
                str(i),
                make_sentence(100 + i),
                context,
                ((answer, start),) if i % 4 < 3 else (),
                f"here:{i}",
            )
        )
    parts = {"train": questions[:20], "heldout": questions[20:]}
    encoded = {split: qa_store.encode_questions(wordpiece, part) for split, part in parts.items()}
    check_store(
        "questions",
        qa_store.write_questions(tmp_path / "questions", wordpiece, parts, encoded),
    )
    pairs = [(make_sentence(i), make_sentence(i + 60)) for i in range(24)]
    parts = {"train": pairs[:20], "heldout": pairs[20:]}
    check_store("text2text", write_pairs(tmp_path / "text2text", wordpiece, Text2Text(), parts))
