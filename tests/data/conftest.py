"""A small vocabulary of each layout and a small store, shared by the tests of the data side."""

import gzip
import json
import pathlib

import pytest
import tokenizers

from data.examples import labelled_examples, tagged_sentences
from data.examples import qa_store as question_store_
from data.examples.labelled_store import write_labelled
from data.examples.qa import Question
from data.examples.text_pairs import write_pairs
from data.images.captioned_store import CaptionRequest, write_captioned_store
from data.images.codebook import Grid
from data.objectives import Text2Text
from data.vocabulary.load import train_vocabulary
from tests.article_store import make_articles, prepare_articles
from tests.captioned_images import write_captioned_images
from tests.small_store import write_store

CORPORA = pathlib.Path(__file__).parents[2].parent / "shared" / "corpora"

STEMS = "walk talk jump look turn play rain snow paint count point help wander gather listen follow".split()
WORDS = "the a of and near under over old green slowly".split() + [
    s + e for s in STEMS for e in ("", "s", "ed", "ing", "er")
]


def make_sentences(count: int) -> list[str]:
    """Return deterministic sentences of three to eleven words, all different."""
    return [
        " ".join(
            WORDS[(i * i + 3 * i * j + j * j + j) % len(WORDS)] for j in range(3 + i % 9)
        ).capitalize()
        + "."
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def corpora() -> pathlib.Path:
    """Return the folder of shared corpora; skip the test if there is none."""
    if not CORPORA.is_dir():
        pytest.skip(f"no corpora at {CORPORA}")
    return CORPORA


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Return 400 sentences, enough for a vocabulary of some 100 tokens."""
    return make_sentences(400)


@pytest.fixture(scope="session")
def vocabulary(texts):
    """Return a SentencePiece vocabulary in BERT's layout, 96 ids."""
    return train_vocabulary(texts, 96)


@pytest.fixture(scope="session")
def t5_vocabulary(texts):
    """Return a SentencePiece vocabulary in T5's layout, 64 tokens and 100 sentinels."""
    return train_vocabulary(texts, 164, layout="t5")


@pytest.fixture(scope="session")
def documents(vocabulary) -> list[list[list[int]]]:
    """Return the ids of 40 documents of one to seven sentences, 160 in all."""
    encoded = iter(vocabulary.encode_batch(make_sentences(160)))
    return [[next(encoded) for _ in range(1 + i % 7)] for i in range(40)]


@pytest.fixture(scope="session")
def store(tmp_path_factory, vocabulary, documents):
    """Return a store of 36 training and 4 held-out documents from one source, in BERT's layout."""
    return write_store(
        tmp_path_factory.mktemp("store") / "small",
        vocabulary,
        documents[:36],
        heldout=documents[36:],
    )


@pytest.fixture(scope="session")
def captioned_store(tmp_path_factory):
    """Return a store of 60 pictures of 16 patches with captions."""
    root = tmp_path_factory.mktemp("captioned")
    write_captioned_images(root / "pairs")
    request = CaptionRequest(str(root / "pairs"), Grid(16, 4, 1), clusters=24, held_out=0.2)
    return write_captioned_store(request, root / "store")


@pytest.fixture(scope="session")
def t5_store(tmp_path_factory, t5_vocabulary, texts):
    """Return the same for T5's layout, with longer documents."""
    encoded = iter(t5_vocabulary.encode_batch(texts))
    long = [[next(encoded) for _ in range(20)] for _ in range(20)]
    return write_store(
        tmp_path_factory.mktemp("store") / "t5", t5_vocabulary, long[:18], heldout=long[18:]
    )


@pytest.fixture(scope="session")
def bytes_store(tmp_path_factory, texts):
    """Return 30 documents of one to seven sentences, in a byte vocabulary with RoBERTa's special
    tokens.
    """
    vocabulary = train_vocabulary(texts, 330, layout="roberta", algorithm="byte_bpe")
    encoded = iter(vocabulary.encode_batch(texts))
    documents = [[next(encoded) for _ in range(1 + i % 7)] for i in range(30)]
    return write_store(
        tmp_path_factory.mktemp("store") / "bytes",
        vocabulary,
        documents[:28],
        heldout=documents[28:],
    )


@pytest.fixture(scope="session")
def articles():
    """Return 120 articles, some of whose fields are missing."""
    return make_articles()


@pytest.fixture(scope="session")
def article_store(tmp_path_factory, articles):
    """Return a store of these articles with the tokens of five fields."""
    return prepare_articles(tmp_path_factory.mktemp("store"), articles)


@pytest.fixture(scope="session")
def pair_store(tmp_path_factory, texts):
    """Return a store of 90 training and 10 held-out pairs, 1 to some 20 tokens a side, from two
    sources.
    """
    vocabulary = train_vocabulary(texts, 96, layout="transformer", algorithm="bpe")
    encoded = vocabulary.encode_batch(texts[:200])
    pairs = [[encoded[i][: 1 + i % 20], encoded[i + 100][: 1 + i * 7 % 20]] for i in range(100)]
    path = tmp_path_factory.mktemp("store") / "pairs"
    return write_store(
        path,
        vocabulary,
        {"one": pairs[:30], "other": pairs[30:90]},
        heldout={"one": pairs[90:], "other": []},
    )


@pytest.fixture(scope="session")
def labelled_store(tmp_path_factory, vocabulary, texts):
    """Return a store of 40 training and 10 held-out pairs of texts with the classes "no" and "yes"."""
    examples = [
        labelled_examples.Example(
            (texts[i], texts[i + 60][: 1 + i]), ("no", "yes")[i % 2], f"here:{i}"
        )
        for i in range(50)
    ]
    path = tmp_path_factory.mktemp("store") / "labelled"
    return write_labelled(
        path, vocabulary, {"train": examples[:40], "heldout": examples[40:]}, ("no", "yes")
    )


@pytest.fixture(scope="session")
def vector_store(tmp_path_factory, vocabulary, texts):
    """Return a store of 40 training and 10 held-out texts with vectors of three components."""
    examples = [
        labelled_examples.Example((texts[i],), (float(i), 0.5, -1.0), f"here:{i}")
        for i in range(50)
    ]
    path = tmp_path_factory.mktemp("store") / "vectors"
    return write_labelled(path, vocabulary, {"train": examples[:40], "heldout": examples[40:]}, ())


@pytest.fixture(scope="session")
def tagged_store(tmp_path_factory, vocabulary, texts):
    """Return a store of 40 sentences whose words have the tags "no" and "yes" alternately."""
    words = [tuple(text.split()) for text in texts[:40]]
    sentences = [
        tagged_sentences.Sentence(
            one, tuple(("no", "yes")[i % 2] for i in range(len(one))), "here", 1, 1
        )
        for one in words
    ]
    return tagged_sentences.write_tagged(
        tmp_path_factory.mktemp("store") / "tagged", vocabulary, {"train": sentences}, ("no", "yes")
    )


@pytest.fixture(scope="session")
def choice_store(tmp_path_factory, vocabulary, texts):
    """Return a store of 40 questions with two choices."""
    examples = [
        labelled_examples.Example(tuple(texts[i : i + 3]), "01"[i % 2], f"here:{i}")
        for i in range(40)
    ]
    return write_labelled(
        tmp_path_factory.mktemp("store") / "choices", vocabulary, {"train": examples}, ("0", "1")
    )


@pytest.fixture(scope="session")
def answered_store(tmp_path_factory, t5_vocabulary, texts):
    """Return a store of 40 training and 10 held-out pairs of a text and its answer, for T5."""
    path, answered = (
        tmp_path_factory.mktemp("store") / "answered",
        [(texts[i], texts[i + 60]) for i in range(50)],
    )
    return write_pairs(
        path, t5_vocabulary, Text2Text(), {"train": answered[:40], "heldout": answered[40:]}
    )


@pytest.fixture(scope="session")
def questions(texts):
    """Return {"train": 40 questions about 14 contexts of 1 to 30 words, every fourth unanswerable;
    "heldout": 8 more}.
    """
    found = []
    for i in range(48):
        context = " ".join(texts[3 * (i // 3) : 3 * (i // 3) + 1 + i // 3 % 3])
        words = context.split()
        at = len(" ".join(words[: i % len(words)])) + (i % len(words) > 0)
        answers = () if i % 4 == 3 else ((" ".join(words[i % len(words) :][: 1 + i % 3]), at),)
        found.append(Question(str(i), texts[100 + i], context, answers, f"here:{i}"))
    return {"train": found[:40], "heldout": found[40:]}


@pytest.fixture(scope="session")
def question_store(tmp_path_factory, vocabulary, questions):
    path = tmp_path_factory.mktemp("store") / "questions"
    encoded = {
        split: question_store_.encode_questions(vocabulary, part)
        for split, part in questions.items()
    }
    return question_store_.write_questions(path, vocabulary, questions, encoded)


@pytest.fixture(scope="session")
def wordpiece(tmp_path_factory):
    """Return a WordPiece vocabulary small enough to know its ids by heart."""
    pieces = "[PAD] [unused0] [UNK] [CLS] [SEP] [MASK] walk ##ing ##ed the [ ] mask un".split()
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    return path


@pytest.fixture(scope="session")
def byte_bpe(tmp_path_factory):
    """Return a byte BPE in RoBERTa's form: special tokens, 256 bytes, three merges."""
    folder = tmp_path_factory.mktemp("bpe")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "<pad>", "</s>", "<unk>", *letters, "Ġt", "Ġth", "he", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\nĠ t\nĠt h\nh e\n")
    return folder


@pytest.fixture(scope="session")
def word_bpe(tmp_path_factory):
    """Return a BPE in GPT's form: an unknown token, letters inside and at the end of a word, three
    merges.
    """
    folder = tmp_path_factory.mktemp("word_bpe")
    letters = "abcdefghijklmnopqrstuvwxyz.,'"
    names = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "the"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\nth e\n")
    return folder


@pytest.fixture(scope="session")
def words(vocabulary, tmp_path_factory) -> str:
    """Return the folder of a saved vocabulary, for requests that do not train one."""
    folder = tmp_path_factory.mktemp("words") / "vocabulary"
    vocabulary.save(folder)
    return str(folder)


@pytest.fixture
def corpus(tmp_path, texts) -> pathlib.Path:
    """Write files of several forms, 61 documents of one to nine sentences in two folders."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    bodies = [" ".join(texts[i : i + 1 + i % 9]) for i in range(0, 300, 5)]
    records = "".join(json.dumps({"text": body}) + "\n" for body in bodies[:40])
    (folder / "a.jsonl").write_text(records)
    (folder / "more" / "b.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps({"text": b}) + "\n" for b in bodies[40:]).encode())
    )
    (folder / "more" / "c.txt").write_text("A title\n\n" + texts[0] + " " + texts[1])
    return folder
