"""The articles of benchmarks.papers.grover: detectors are scored on other authors than those they learn
from, no section is in two parts, and real and generated bodies have equal numbers of words.
"""

import json

import pytest

from benchmarks.papers import grover

pytestmark = pytest.mark.fast
SECTIONS, PARAGRAPHS = 12, 6


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the articles of ten authors, whose words name author and section."""
    books = tmp_path / "books"
    books.mkdir()
    for author in "abcdefghij":
        lines = []
        for section in range(SECTIONS):
            paragraphs = [
                " ".join(f"{author}{section}p{p}w{w}" for w in range(90)) for p in range(PARAGRAPHS)
            ]
            text = "\n".join(["A title", *paragraphs])
            lines.append(json.dumps({"section": f"chapter-{section}", "text": text}) + "\n")
        (books / f"{author}-x_the-book_translator.jsonl").write_text("".join(lines))
    grover.write_articles(books, tmp_path, {"train": 70, "test": 30})
    return tmp_path


def test_authors_and_sections_are_in_one_part(folder):
    parts = {
        part: grover.read_lines(folder / f"{part}.jsonl") for part in ("generator", "train", "test")
    }
    authors = {part: {a["authors"] for a in articles} for part, articles in parts.items()}
    assert len(authors["test"]) == 3 and len(authors["train"]) == 7
    assert authors["test"].isdisjoint(authors["train"])
    assert authors["generator"] == authors["test"] | authors["train"]
    sections = [{(a["authors"], a["headline"]) for a in articles} for articles in parts.values()]
    assert sum(map(len, sections)) == len(set.union(*sections)) > 9 * SECTIONS
    article = parts["generator"][0]
    author = article["authors"][0].lower()
    number = article["headline"].removeprefix("Chapter ")
    assert article["title"] == "The Book" and article["authors"] == f"{author.upper()} X"
    assert all(word.startswith(f"{author}{number}p") for word in article["body"].split())


def test_bodies_are_cut_to_one_length_in_equal_numbers(folder):
    """Generated bodies that are too short are left out with the real ones next to them."""
    articles = grover.read_lines(folder / "test.jsonl")
    written = [article | {"written": "b " * (59 + i % 3)} for i, article in enumerate(articles)]
    grover.write_lines(folder / "test_0.9.jsonl", written)
    rows = grover.generate_bodies(folder, "test", 0.9)
    assert {len(row["text"].split()) for row in rows} == {grover.CUT_WORDS}
    labels = [row["label"] for row in rows]
    assert labels == ["real", "generated"] * (len(rows) // 2)
    assert len(rows) // 2 == sum(i % 3 > 0 for i in range(len(articles)))
