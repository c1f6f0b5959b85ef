"""Tagged sentences are read unchanged, their words are tokenised as in transformers, and errors
name the file and line.
"""

import gzip
import json
import re

import numpy as np
import pytest

from data.config import Data
from data.examples import tagged_sentences
from data.examples.tagged_sentences import choose_scheme, encode_words, read_sentences, write_tagged
from data.inspection.batch_report import inspect_batches
from data.objectives import Tagging
from data.pipeline import Stream
from data.store.reader import Store
from data.vocabulary.load import read_vocabulary, train_vocabulary
from pretrain.convert import tokenizer

CONLL = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\nGerman JJ B-NP B-MISC\n\nPeter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER"
WORDS = [("EU", "rejects", "German"), ("Peter", "Blackburn")]
TAGS = [("B-ORG", "O", "B-MISC"), ("B-PER", "I-PER")]
TEXT = [
    "The fox and the dog. A word and another word, and so on.",
    "Gaps are left out of a text, and the reader fills them.",
]


def write_text(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def format_json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.conll", CONLL),
        ("a.txt", "\ufeff" + CONLL.replace("\n", "\r\n") + "\r\n\r\n"),
        ("a.tsv.gz", CONLL.replace(" ", "\t").replace("\n\n", "\n\t\n")),
        ("a.jsonl", format_json_lines(*({"words": words, "tags": tags} for words, tags in zip(WORDS, TAGS)))),
        ("a.jsonl", format_json_lines(*({"tokens": words, "ner_tags": tags} for words, tags in zip(WORDS, TAGS)))),
    ],
)  # fmt: skip
def test_sentences_are_read(tmp_path, name, text):
    sentences = read_sentences(write_text(tmp_path, name, text))
    assert [(one.words, one.tags) for one in sentences] == list(zip(WORDS, TAGS))
    assert (
        sentences[1].locate_word(1).endswith("a.jsonl:2" if name.endswith("jsonl") else f"{name}:8")
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "a b O\nc d\n", "a.conll:2: columns: 2 ('c d'); expected 3, as the first word's line has"),
        ("a.conll", "a\tO\nword\n", "a.conll:2: columns: 1 ('word'); expected 2"),
        ("a.conll", "word\n", "a.conll:1: columns: 1 ('word'); expected a word and its tag"),
        ("a.tsv", "a\tO\n\tO\n", "a.tsv:2: the word is empty"),
        ("a.tsv", "a\tO\nb\t\n", "a.tsv:2: the tag is empty"),
        ("a.conll", "\n-DOCSTART- O\n", "a.conll: no sentences in it"),
        ("a.csv", "a,O\n", "a.csv: tagged text is a file of columns, which ends in .conll, .txt, .tsv, or .jsonl"),
        ("a.jsonl", format_json_lines({"words": ["a"], "tags": ["O"]}, {"words": ["a", "b"], "tags": ["O"]}),
         "a.jsonl:2: 2 words, 1 tags"),
        ("a.jsonl", format_json_lines({"words": ["a"], "tags": "O"}),
         "a.jsonl:1: 1 words, 'tags' that is str, not a list"),
        ("a.jsonl", format_json_lines({"words": "a b", "tags": ["O"]}), "a.jsonl:1: 'words' is not a list of words"),
        ("a.jsonl", format_json_lines({"words": ["a"], "tags": [None]}), "a.jsonl:1: None is not the name of a class"),
        ("a.jsonl", format_json_lines({"text": "a"}), "a.jsonl:1: expected words and tags or tokens and tags"),
    ],
)  # fmt: skip
def test_errors_are_reported_with_its_line(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_sentences(write_text(tmp_path, name, text))


def test_tags_must_be_of_the_scheme_and_known(tmp_path):
    sentences = read_sentences(write_text(tmp_path, "a.conll", CONLL))
    assert choose_scheme(sentences) == ("bio", sentences)
    assert choose_scheme(sentences, "plain") == ("plain", sentences)
    with pytest.raises(
        ValueError,
        match=r"a.conll:8: the tag 'I-PER' is not one of 'O', 'B-ORG', 'B-MISC', 'B-PER', the tags",
    ):
        tagged_sentences.encode_tags(sentences, ("O", "B-ORG", "B-MISC", "B-PER"))
    other = read_sentences(write_text(tmp_path, "b.conll", "a O\nb E-X\n"))
    with pytest.raises(
        ValueError,
        match="b.conll:2: 'E-X' is not a tag of bilou, which has O and B-, I-, L-, U-; --scheme names another",
    ):
        choose_scheme(other, "bilou")
    with pytest.raises(
        ValueError, match="c.conll: all words have the tag 'O'; nothing can be learned"
    ):
        choose_scheme(read_sentences(write_text(tmp_path, "c.conll", "a O\n\nb O\n")))
    with pytest.raises(ValueError, match="--columns are names in JSON lines"):
        read_sentences(write_text(tmp_path, "c.conll", "a O\n"), ("words", "tags"))
    renamed = read_sentences(
        write_text(tmp_path, "d.jsonl", format_json_lines({"w": ["a"], "t": [3]})), ("w", "t")
    )
    assert renamed[0].words == ("a",) and renamed[0].tags == ("3",)


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] the fo ##x ##es don ' t a dog .".split()
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text("\n".join(pieces))
    return {
        "unigram": train_vocabulary(TEXT * 20, 38),
        "bpe": train_vocabulary(TEXT * 20, 72, algorithm="bpe"),
        "bytes": train_vocabulary(TEXT * 20, 290, layout="roberta", algorithm="byte_bpe"),
        "wordpiece": read_vocabulary(path),
    }


SENTENCES = [
    ("The", "foxes", "don't", "sleep", ".", "(Ünder)", "\u200b", "a,b"),
    ("dog",),
    (",", "and", "New York", "word"),
]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "bytes", "wordpiece"])
def test_words_have_the_ids_of_the_exported_tokenizer(kind, vocabularies):
    vocabulary = vocabularies[kind]
    theirs = tokenizer.build_tokenizer(vocabulary, "roberta" if kind == "bytes" else "bert")
    for words, ids in zip(SENTENCES, encode_words(vocabulary, SENTENCES)):
        blanks = [f"{' ' if i and kind == 'bytes' else ''}{word}" for i, word in enumerate(words)]
        encoding = theirs.encode(blanks, is_pretokenized=True, add_special_tokens=False)
        assert [i for word in ids for i in word] == encoding.ids
        assert [number for number, word in enumerate(ids) for _ in word] == encoding.word_ids
        if kind == "bytes":
            assert theirs.encode(" ".join(words), add_special_tokens=False).ids == encoding.ids


NAMES = ("O", "B-X", "I-X")


def make_sentence(words, tags):
    return tagged_sentences.Sentence(tuple(words.split()), tuple(tags.split()), "here", 1, 1)


@pytest.fixture(scope="module")
def store(vocabularies, tmp_path_factory):
    parts = {
        "train": [
            make_sentence("the foxes don't", "O B-X I-X"),
            make_sentence("dog", "B-X"),
            make_sentence("a dog the fox a dog . a", "O B-X O O O B-X I-X O"),
        ],
        "heldout": [make_sentence("the \u200b dog", "O I-X B-X"), make_sentence("\u200b", "O")],
    }
    return write_tagged(
        tmp_path_factory.mktemp("tagged") / "store",
        vocabularies["wordpiece"],
        parts,
        NAMES,
        digest="d",
    )


def test_a_tag_is_at_the_first_piece_of_its_word(store, vocabularies):
    stream = Stream(store, Data(objective=Tagging(length=9), batch_size=3))
    batch, vocabulary = stream.build_evaluation_batch(0), vocabularies["wordpiece"]
    row_tags = [
        [vocabulary.pieces[i] for i in tokens[valid]]
        for tokens, valid in zip(batch["token_ids"], batch["attention_mask"])
    ]
    assert (
        row_tags[0] == "[CLS] the fo ##x ##es don ' t [SEP]".split()
        and row_tags[1] == "[CLS] dog [SEP]".split()
    )
    assert row_tags[2] == "[CLS] a dog the fo ##x a dog [SEP]".split()
    assert batch["label_weights"].tolist() == [
        [0, 1, 1, 0, 0, 1, 0, 0, 0],
        [0, 1] + [0] * 7,
        [0, 1, 1, 1, 1, 0, 1, 1, 0],
    ]
    assert batch["labels"][0].tolist() == [0, 0, 1, 0, 0, 2, 0, 0, 0] and batch["labels"][
        2
    ].tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert stream.table.num_truncated == 1 and stream.table.num_missed_words == 2
    heldout = Stream(store, Data(objective=Tagging(length=9), batch_size=2), split="heldout")
    assert (
        heldout.num_rows == 1 and heldout.build_evaluation_batch(0)["label_weights"].sum() == 2
    )  # and a row that pads the batch
    assert store.manifest["silent"] == {"train": 0, "heldout": 2} and store.manifest[
        "labels"
    ] == list(NAMES)
    assert (
        heldout.split.tags.tolist() == [0, 1]
        and heldout.split.labels is None
        and Store.open(store.path).manifest["digest"] == "d"
    )


def test_a_word_weighs_what_its_tag_does(store):
    plain, weighed = (
        Stream(store, Data(objective=Tagging(length=9, class_weights=weights), batch_size=2))
        for weights in ((), (0.5, 2.0, 3.0))
    )
    for index in range(2):
        alike, batch = plain.build_evaluation_batch(index), weighed.build_evaluation_batch(index)
        np.testing.assert_array_equal(alike["label_weights"], alike["word_weights"])
        np.testing.assert_array_equal(batch["word_weights"], alike["word_weights"])
        np.testing.assert_array_equal(
            # only the ratios matter: the least is 1
            batch["label_weights"],
            np.array([1, 4, 6])[batch["labels"]] * alike["label_weights"],
        )
    assert (
        batch["row_weights"].tolist() == [1, 0] and not batch["label_weights"][1].any()
    )  # a row that pads the batch
    assert inspect_batches(weighed, batches=2)["passed"]
    with pytest.raises(ValueError, match="2 weights for more classes"):
        Stream(store, Data(objective=Tagging(class_weights=(1.0, 2.0))))
    for wrong in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="tagging: class_weights=.*above 0"):
            Stream(store, Data(objective=Tagging(class_weights=(1.0, wrong, 1.0))))


def test_files_without_tags_are_refused(vocabularies, tmp_path):
    from tests.small_store import write_store

    plain = write_store(tmp_path / "plain", vocabularies["wordpiece"], [[[5, 6]]])
    with pytest.raises(
        ValueError, match="its words have no tags; `finetune --task tagging` makes a store"
    ):
        Stream(plain, Data(objective=Tagging()))
    with pytest.raises(ValueError, match="tagging: length=2"):
        Tagging(length=2).check_vocabulary(vocabularies["wordpiece"])


@pytest.mark.parametrize(
    ("place", "labels"),
    [
        ("first", ["1:0 2:1 3:0 4:0 6:0 7:1", "1:0 2:1 5:2", "1:1"]),
        ("last", ["0:0 1:1 2:0 3:0 5:0 6:1", "0:0 1:1 4:2", "0:1"]),
    ],
)
def test_inspection_shows_the_tags(store, place, labels):
    stream = Stream(store, Data(objective=Tagging(length=9, cls_position=place), batch_size=3))
    assert sorted(row["label"] for row in inspect_batches(stream, batches=2)["rows"]) == labels
