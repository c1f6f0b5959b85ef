"""Tags of words and the entities that they spell, by a fine-tuned model.

B batch   L row length   C tags
"""

import sys
from functools import partial
from typing import Any

import jax

from data.examples.records import read_words
from data.examples.tag_schemes import OUTSIDE, PLAIN, entities
from data.examples.tagging import USUAL, word_ids
from models import build
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, fill, named, padded, power


class Tags:
    """Calling it with sentences, each a tuple of words, gives {"tags", "entities"} of each.

    tags: the name of one for each word. entities: [{"type", "text", "start", "end"}], the words [start, end) of the sentence; none of plain
    tags. A word of which the vocabulary makes no token has the tag O, or None where that is no tag. So has one whose first piece stands behind
    the end of a row, which is as long as in training; the result then has "cut": true.
    """

    def __init__(self, trained, batch_size):
        config = trained.run.model
        self.model, self.params, self.labels, self.spelled = (
            build(config, **make_local_hooks()),
            trained.params,
            config.labels,
            config.scheme != PLAIN,
        )
        self.vocabulary, self.batch_size = trained.vocabulary, batch_size
        self.length = trained.run.data.objective.length
        self.unread = OUTSIDE if OUTSIDE in config.labels else None

    def __call__(self, sentences, places):
        """[result] of sentences; `places` name them in errors (None: by their number)."""
        rows = [
            Row(self.vocabulary, words, self.length)
            for words in word_ids(self.vocabulary, sentences)
        ]
        if empty := next((place for place, row in zip(named(places), rows) if not row.first), None):
            raise ValueError(f"{empty}: the vocabulary makes no token of it")
        results: list[Any] = [None] * len(sentences)
        for batch in batches([padded(len(row.ids)) for row in rows], self.batch_size):
            B, L = power(len(batch)), min(padded(max(len(rows[i].ids) for i in batch)), self.length)
            tokens_BL, valid_BL = fill([rows[i].ids for i in batch], B, L, self.vocabulary.pad)
            for i, numbers_L in zip(
                batch, jax.device_get(_tags(self.model, self.params, tokens_BL, valid_BL)).tolist()
            ):
                results[i] = self._result(sentences[i], rows[i], numbers_L)
        if cut := sum(row.cut for row in rows):
            print(
                f"{cut:,} of {len(sentences):,} sentences are longer than a row of {self.length} tokens and were cut",
                file=sys.stderr,
            )
        return results

    def _result(self, words, row, numbers_L):
        tags: list[Any] = [
            self.labels[numbers_L[row.first[i]]] if i in row.first else self.unread
            for i in range(len(words))
        ]
        found = (
            [
                one._asdict() | {"text": " ".join(words[one.start : one.end])}
                for one in entities(tags)
            ]
            if self.spelled
            else []
        )
        return {"tags": tags, "entities": found} | ({"cut": True} if row.cut else {})


class Row:
    """The ids of a sentence's row, and the place in it of each word's first piece, by the word's number."""

    def __init__(self, vocabulary, words, length):
        pieces = [
            (i, piece, at == 0) for i, word in enumerate(words) for at, piece in enumerate(word)
        ]
        kept = pieces[: length - 2]
        self.cut = len(kept) < len(pieces)
        self.ids = [vocabulary.cls, *(piece for _, piece, _ in kept), vocabulary.sep]
        self.first = {i: at for at, (i, _, first) in enumerate(kept, 1) if first}


@partial(jax.jit, static_argnames=("model",))
def _tags(model, params, tokens_BL, valid_BL):
    """The number of the likeliest tag at each token: int32 [B, L]."""
    return model.apply({"params": params}, tokens_BL, valid_BL).argmax(-1)


def reader(trained):
    """A function (record, place) -> the words in it; place: None on the command line."""
    columns = trained.run.data.objective.columns
    return lambda record, place: read_words(
        record, place or "the command line", [*columns[:1], *(words for words, _ in USUAL)]
    )


def told(words, result):
    """A sentence with its entities, or with its tags where there are no entities to tell, as lines for a person."""
    shown = [f"{one['type'] or 'entity':<12}{one['text']}" for one in result["entities"]]
    if not shown and set(result["tags"]) != {OUTSIDE}:
        shown = [" ".join(f"{word}/{tag}" for word, tag in zip(words, result["tags"]))]
    return "\n".join([" ".join(words), *(f"    {line}" for line in shown)])
