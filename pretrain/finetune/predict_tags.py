"""Tags of words, and the entities that they spell, by a fine-tuned model.

B batch   L row length
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from data.examples.records import read_words
from data.examples.tag_schemes import OUTSIDE, PLAIN, entities
from data.examples.tagging import USUAL, word_ids
from models import build
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, fill, named, padded, power

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from pretrain.inference.trained import Trained


class Tags:
    """Predicts {"tags", "entities"} of sentences, each a tuple of words.

    tags      the name of a tag for each word
    entities  [{"type", "text", "start", "end"}], the words [start, end) of the sentence; none for
              plain tags

    A word without a token in the vocabulary has the tag O, or None if that is no tag. So has a word
    whose first token is beyond the end of a row, which is as long as in training; the result then
    has "cut": true.
    """

    def __init__(self, trained: Trained, batch_size: int) -> None:
        config: Any = trained.run.model
        objective: Any = trained.run.data.objective
        self.model = build(config, **make_local_hooks())
        self.params, self.labels, self.spelled = (
            trained.params,
            config.labels,
            config.scheme != PLAIN,
        )
        self.vocabulary, self.batch_size = trained.vocabulary, batch_size
        self.length = objective.length
        self.unread = OUTSIDE if OUTSIDE in config.labels else None

    def __call__(
        self, sentences: Sequence[Sequence[str]], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each sentence; `places` name them in errors (None: their number)."""
        rows = [
            Row(self.vocabulary, words, self.length)
            for words in word_ids(self.vocabulary, sentences)
        ]
        if empty := next((place for place, row in zip(named(places), rows) if not row.first), None):
            raise ValueError(f"{empty}: the vocabulary has no token for any of its words")
        results: list[Any] = [None] * len(sentences)
        for batch in batches([padded(len(row.ids)) for row in rows], self.batch_size):
            B, L = power(len(batch)), min(padded(max(len(rows[i].ids) for i in batch)), self.length)
            tokens_BL, valid_BL = fill([rows[i].ids for i in batch], B, L, self.vocabulary.pad)
            numbers_BL = jax.device_get(_tags(self.model, self.params, tokens_BL, valid_BL))
            for i, numbers_L in zip(batch, numbers_BL.tolist()):
                results[i] = self._result(sentences[i], rows[i], numbers_L)
        if num_cut := sum(row.cut for row in rows):
            print(
                f"{num_cut:,} of {len(sentences):,} sentences are longer than a row of "
                f"{self.length} tokens and were truncated",
                file=sys.stderr,
            )
        return results

    def _result(self, words: Sequence[str], row: Row, numbers_L: list[int]) -> dict[str, Any]:
        """Return the result of a sentence whose row has the tags of these numbers."""
        tags: list[Any] = [
            self.labels[numbers_L[row.first[i]]] if i in row.first else self.unread
            for i in range(len(words))
        ]
        found = [
            entity._asdict() | {"text": " ".join(words[entity.start : entity.end])}
            for entity in (entities(tags) if self.spelled else ())
        ]
        return {"tags": tags, "entities": found} | ({"cut": True} if row.cut else {})


class Row:
    """The tokens of a sentence.

    Attributes:
      ids: the token ids, with [CLS] and [SEP].
      first: {number of a word: position of its first token}.
      cut: whether the sentence is longer than the row.
    """

    def __init__(self, vocabulary: Vocabulary, words: Sequence[Sequence[int]], length: int) -> None:
        tokens = [
            (i, token, position == 0)
            for i, word in enumerate(words)
            for position, token in enumerate(word)
        ]
        fitting = tokens[: length - 2]
        self.cut = len(fitting) < len(tokens)
        self.ids: list[Any] = [vocabulary.cls, *(token for _, token, _ in fitting), vocabulary.sep]
        self.first = {
            i: position for position, (i, _, is_first) in enumerate(fitting, 1) if is_first
        }


@partial(jax.jit, static_argnames=("model",))
def _tags(model: Any, params: Any, tokens_BL: jax.Array, valid_BL: jax.Array) -> jax.Array:
    """Return the number of the most probable tag at each token, int32 [B, L]."""
    return model.apply({"params": params}, tokens_BL, valid_BL).argmax(-1)


def reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the words of a record.

    The place is None on the command line.
    """
    objective: Any = trained.run.data.objective
    columns = objective.columns
    return lambda record, place: read_words(
        record, place or "the command line", [*columns[:1], *(words for words, _ in USUAL)]
    )


def told(words: Sequence[str], result: dict[str, Any]) -> str:
    """Return a sentence with its entities, or with its tags, formatted for the terminal."""
    lines = [f"{entity['type'] or 'entity':<12}{entity['text']}" for entity in result["entities"]]
    if not lines and set(result["tags"]) != {OUTSIDE}:
        lines = [" ".join(f"{word}/{tag}" for word, tag in zip(words, result["tags"]))]
    return "\n".join([" ".join(words), *(f"    {line}" for line in lines)])
