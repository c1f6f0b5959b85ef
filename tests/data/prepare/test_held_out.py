"""No text of the held-out part is in the training part, however its copies are written."""

import itertools
import json
import sys
import unicodedata

import pytest
from tokenizers import normalizers

from data.examples.labelled_examples import Example
from data.examples.labelled_store import split_examples
from data.prepare import held_out
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.summary import format_summary
from data.store.reader import Store
from data.vocabulary.sentencepiece_training import train_sentencepiece

WORDS = "café über Straße naïve façade señor crème Ångström old river stone walks under light"
COPIES = {
    "composed": lambda text: unicodedata.normalize("NFC", text),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "wide blanks": lambda text: text.replace(" ", "\u3000"),
    "capitals": str.upper,
    "small letters": str.lower,
}


def write_documents(number):
    """Return different documents of two lines, with accents."""
    words = WORDS.split()
    return [
        f"{words[i % 14]} {words[i // 14 % 14]} the\n{words[(i * 5 + 3) % 14]} {i} café."
        for i in range(number)
    ]


def split_ids(store, name):
    """Return the ids of each document of a split."""
    split = store.open_split(name)
    return [tuple(split.tokens[a:b]) for a, b in itertools.pairwise(split.document_starts.tolist())]


@pytest.mark.parametrize("lowercase", [False, True])
def test_copies_are_in_the_same_part(tmp_path, lowercase):
    makers = list(COPIES.values())[: None if lowercase else 4]
    texts = [make(text) for text in write_documents(120) for make in makers]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    request = PrepareRequest((str(path),), vocab_size=60, held_out=0.2, lowercase=lowercase)
    store = prepare_store(request, tmp_path / "store").store
    train, held = set(split_ids(store, "train")), split_ids(store, "heldout")
    assert len(held) > 10 * len(makers) and not train & set(held)
    assert len(held) % len(makers) == 0 and len(set(held)) >= len(held) // len(makers)


def test_copies_of_examples_are_in_the_same_part():
    texts = [make(text) for text in write_documents(120) for make in COPIES.values()]
    examples = [Example((text, "a second text"), "a", f"here:{i}") for i, text in enumerate(texts)]
    train, held = split_examples(examples, 0.2)
    number = len(COPIES)
    owners = [{int(each.location[5:]) // number for each in part} for part in (train, held)]
    assert len(held) > 10 * number and not owners[0] & owners[1]


def test_the_split_does_not_depend_on_the_vocabulary(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(write_documents(80)))
    found = []
    for name, size, lowercase in (("one", 60, False), ("two", 56, True)):
        request = PrepareRequest(
            (str(path),), vocab_size=size, lowercase=lowercase, document="block", held_out=0.2
        )
        store = prepare_store(request, tmp_path / name).store
        split = store.open_split("heldout")
        bounds = split.document_starts.tolist()
        texts = [
            store.vocabulary.decode(split.tokens[a:b].tolist())
            for a, b in itertools.pairwise(bounds)
        ]
        found.append([text[-10:].split()[-2] for text in texts])  # the number of the document
    assert found[0] == found[1] and len(found[0]) > 5


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "bert"])
def test_characters_that_a_vocabulary_reads_alike_have_one_hash(rule):
    """All assigned characters, against the three normalizations of vocabularies."""
    if rule == "bert":
        normalize = normalizers.BertNormalizer().normalize_str
    else:
        texts = ["one two three four five six seven eight"] * 40
        normalize = train_sentencepiece(texts, 22, lowercase=rule == "nmt_nfkc_cf")
        normalize = normalize._processor.normalize
    differing = []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Co", "Cs"):
            continue
        text = f"a{character}b"
        if held_out.fold_text(normalize(text).encode()) != held_out.fold_text(text.encode()):
            differing.append(character)
    assert not differing


def test_different_texts_have_different_hashes():
    texts = ["a1", "a2", "1+1", "1-1", "数学", "数字", "κ", "γ", "!", "?", "\u0301", "\u0300", ""]
    assert len({held_out.hash_document(text.encode()) for text in texts}) == len(texts)
    assert held_out.fold_text("ﬁne Å\r\n“É” 'x' №".encode()) == "finea“e”xno".encode()


def test_a_store_of_an_earlier_version_says_how_it_is_split(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(write_documents(80)))
    request = PrepareRequest((str(path),), vocab_size=60, document="block", held_out=0.2)
    made = prepare_store(request, tmp_path / "store")
    assert made.store.manifest["held_out"]["by"] == held_out.HASHED
    assert not any("earlier version" in line for line in format_summary(made))
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    del manifest["held_out"]["by"]
    (tmp_path / "store" / "manifest.json").write_text(json.dumps(manifest))
    again = prepare_store(request, tmp_path / "store")
    assert again.existed and Store.open(tmp_path / "store").open_split("heldout")
    (line,) = [line for line in format_summary(again) if "earlier version" in line]
    assert "--overwrite" in line
