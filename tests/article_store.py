"""Stores of small articles: JSON lines with fields that some of them lack."""

import json

from data.prepare.build import PrepareRequest, prepare_store

FIELDS = ("domain", "date", "authors", "headline", "body")
WORDS = "river stone winter market letter garden window harbour engine council".split()


def make_articles(count=120):
    """Return articles, all different: every third has no date, every fifth no authors, and every
    fortieth no body.
    """
    articles = []
    for i in range(count):
        words = [WORDS[(i * i + 3 * i * j + j * j) % len(WORDS)] for j in range(6 + 7 * i % 30)]
        article = {
            "domain": f"{words[0]}.example",
            "date": f"May {1 + i % 28}, 2019",
            "authors": [words[1].capitalize(), words[2].capitalize()][: 1 + i % 2],
            "headline": " ".join(words[:4]).capitalize(),
            "body": " ".join(words[4:]).capitalize() + f".\n\n{i} more.",
        }
        if i % 3 == 0:
            article["date"] = None
        if i % 5 == 0:
            del article["authors"]
        if i % 40 == 7:
            article["body"] = " "
        articles.append(article)
    return articles


def write_articles(path, articles):
    """Write articles as JSON lines and return the path."""
    path.write_text("".join(json.dumps(article) + "\n" for article in articles))
    return path


def prepare_articles(folder, articles=None, **options):
    """Prepare a store of articles in a folder with the tokenizer of GPT-2, 310 ids."""
    path = write_articles(folder / "articles.jsonl", articles or make_articles())
    defaults = dict(
        field=",".join(FIELDS), algorithm="byte_bpe", layout="gpt2", vocab_size=310, held_out=0.1
    )
    request = PrepareRequest(sources=(str(path),), document="fields", **defaults | options)
    return prepare_store(request, folder / "store").store
