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
from data.examples.tag_schemes import OUTSIDE, PLAIN, find_entities
from data.examples.tagged_sentences import USUAL_KEYS, encode_words
from data.rows.frames import CLS_TYPE
from models import build
from pretrain.inference.batching import (
    make_batches,
    name_places,
    pad_length,
    pad_rows,
    round_up_to_power,
)
from pretrain.kernels.model_hooks import make_local_hooks

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from pretrain.workdir.trained import Trained


class TagPredictor:
    """Predicts {"tags", "entities"} of sentences, each a tuple of words.

    tags      the name of a tag for each word
    entities  [{"type", "text", "start", "end"}], the words [start, end) of the sentence; none for
              plain tags

    A word without a token in the vocabulary has the tag O, or None if the scheme has no O. The same
    holds for a word beyond the end of a row, which is as long as in training; the result then has
    "cut": true.
    """

    def __init__(self, trained: Trained, batch_size: int) -> None:
        config: Any = trained.run.model
        objective: Any = trained.run.data.objective
        self.model = build(config, **make_local_hooks())
        self.params, self.labels, self.has_entities = (
            trained.params,
            config.labels,
            config.scheme != PLAIN,
        )
        self.trained, self.batch_size = trained, batch_size
        self.pad: Any = trained.vocabulary.pad
        self.length, self.cls_position = objective.length, objective.cls_position
        self.unread_tag = OUTSIDE if OUTSIDE in config.labels else None

    def __call__(
        self, sentences: Sequence[Sequence[str]], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each sentence; `places` name them in errors (None: their number)."""
        trained = self.trained.open_to(word for words in sentences for word in words)
        rows = [
            TagRow(trained.vocabulary, words, self.length, self.cls_position)
            for words in encode_words(trained.vocabulary, sentences)
        ]
        if empty := next(
            (
                place
                for place, row in zip(name_places(places), rows)
                if not row.first_piece_positions
            ),
            None,
        ):
            raise ValueError(f"{empty}: the vocabulary has no token for any of its words")
        results: list[Any] = [None] * len(sentences)
        for batch in make_batches([pad_length(len(row.ids)) for row in rows], self.batch_size):
            B = round_up_to_power(len(batch))
            L = min(pad_length(max(len(rows[i].ids) for i in batch)), self.length)
            tokens_BL, valid_BL = pad_rows([rows[i].ids for i in batch], B, L, self.pad)
            types_BL = None
            if self.cls_position == "last":
                types_BL, _ = pad_rows([rows[i].token_types for i in batch], B, L, 0)
            inputs = trained.make_inputs(tokens_BL)
            numbers_BL = jax.device_get(
                _predict_tags(self.model, self.params, inputs, valid_BL, types_BL)
            )
            for i, numbers_L in zip(batch, numbers_BL.tolist()):
                results[i] = self._make_result(sentences[i], rows[i], numbers_L)
        if num_cut := sum(row.is_cut for row in rows):
            print(
                f"{num_cut:,} of {len(sentences):,} sentences are longer than a row of "
                f"{self.length} tokens and were truncated",
                file=sys.stderr,
            )
        return results

    def _make_result(
        self, words: Sequence[str], row: TagRow, numbers_L: list[int]
    ) -> dict[str, Any]:
        """Return the result of a sentence whose row has the tags of these numbers."""
        tags: list[Any] = [
            self.labels[numbers_L[row.first_piece_positions[i]]]
            if i in row.first_piece_positions
            else self.unread_tag
            for i in range(len(words))
        ]
        found = [
            entity._asdict() | {"text": " ".join(words[entity.start : entity.end])}
            for entity in (find_entities(tags) if self.has_entities else ())
        ]
        return {"tags": tags, "entities": found} | ({"cut": True} if row.is_cut else {})


class TagRow:
    """The tokens of a sentence.

    Attributes:
      ids: the token ids, with [CLS] and [SEP].
      token_types: their types, in rows whose [CLS] is last.
      first_piece_positions: {number of a word: position of its first token}.
      is_cut: whether the sentence is longer than the row.
    """

    def __init__(
        self, vocabulary: Vocabulary, words: Sequence[Sequence[int]], length: int, cls_position: str
    ) -> None:
        tokens = [
            (i, token, position == 0)
            for i, word in enumerate(words)
            for position, token in enumerate(word)
        ]
        fitting = tokens[: length - 2]
        self.is_cut = len(fitting) < len(tokens)
        before, after = [vocabulary.cls], [vocabulary.sep]
        if cls_position == "last":
            before, after = [], [*after, *before]
        self.ids: list[Any] = [*before, *(token for _, token, _ in fitting), *after]
        self.token_types = [0] * (len(self.ids) - 1) + [CLS_TYPE]
        self.first_piece_positions = {
            i: position
            for position, (i, _, is_first) in enumerate(fitting, len(before))
            if is_first
        }


@partial(jax.jit, static_argnames=("model",))
def _predict_tags(
    model: Any, params: Any, tokens_BL: jax.Array, valid_BL: jax.Array, types_BL: jax.Array | None
) -> jax.Array:
    """Return the number of the most probable tag at each token, int32 [B, L]."""
    return model.apply({"params": params}, tokens_BL, valid_BL, types_BL).argmax(-1)


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the words of a record.

    The place is None on the command line.
    """
    objective: Any = trained.run.data.objective
    columns = objective.columns
    return lambda record, place: read_words(
        record, place or "the command line", [*columns[:1], *(words for words, _ in USUAL_KEYS)]
    )


def format_tags(words: Sequence[str], result: dict[str, Any]) -> str:
    """Return a sentence with its entities, or with its tags, formatted for the terminal."""
    lines = [f"{entity['type'] or 'entity':<12}{entity['text']}" for entity in result["entities"]]
    if not lines and set(result["tags"]) != {OUTSIDE}:
        lines = [" ".join(f"{word}/{tag}" for word, tag in zip(words, result["tags"]))]
    return "\n".join([" ".join(words), *(f"    {line}" for line in lines)])
