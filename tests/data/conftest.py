"""A small vocabulary of each layout and a small store, shared by the tests of the data side."""

import pathlib

import pytest

from data.store import write_store
from data.tokenizers import train_vocabulary

CORPORA = pathlib.Path(__file__).parents[2].parent / "shared" / "corpora"

STEMS = "walk talk jump look turn play rain snow paint count point help wander gather listen follow".split()
WORDS = "the a of and near under over old green slowly".split() + [s + e for s in STEMS for e in ("", "s", "ed", "ing", "er")]


def sentences(count: int) -> list[str]:
    """Deterministic sentences of three to eleven words, all different in places."""
    return [
        " ".join(WORDS[(i * i + 3 * i * j + j * j + j) % len(WORDS)] for j in range(3 + i % 9)).capitalize() + "."
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def corpora() -> pathlib.Path:
    """The folder of shared corpora; the test is skipped where there is none."""
    if not CORPORA.is_dir():
        pytest.skip(f"no corpora at {CORPORA}")
    return CORPORA


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """400 sentences, enough for a vocabulary of some 100 pieces."""
    return sentences(400)


@pytest.fixture(scope="session")
def vocabulary(texts):
    """SentencePiece, BERT's layout, 96 ids."""
    return train_vocabulary(texts, 96)


@pytest.fixture(scope="session")
def t5_vocabulary(texts):
    """SentencePiece, T5's layout, 64 pieces and 100 sentinels."""
    return train_vocabulary(texts, 164, layout="t5")


@pytest.fixture(scope="session")
def documents(vocabulary) -> list[list[list[int]]]:
    """Ids of 40 documents of one to seven sentences, 160 in all."""
    encoded = iter(vocabulary.encode_batch(sentences(160)))
    return [[next(encoded) for _ in range(1 + i % 7)] for i in range(40)]


@pytest.fixture(scope="session")
def store(tmp_path_factory, vocabulary, documents):
    """A store of 36 training and 4 held-out documents from one source, for BERT's layout."""
    return write_store(tmp_path_factory.mktemp("store") / "small", vocabulary, documents[:36], heldout=documents[36:])


@pytest.fixture(scope="session")
def t5_store(tmp_path_factory, t5_vocabulary, texts):
    """The same for T5's layout, with longer documents."""
    encoded = iter(t5_vocabulary.encode_batch(texts))
    long = [[next(encoded) for _ in range(20)] for _ in range(20)]
    return write_store(tmp_path_factory.mktemp("store") / "t5", t5_vocabulary, long[:18], heldout=long[18:])
