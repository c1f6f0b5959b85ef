"""Labels and scores of texts and pairs of texts by a fine-tuned model.

Rows are batched by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   C classes
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from data.examples.labelled_examples import clean_text, parse_text
from data.examples.records import read_texts
from data.rows.frames import find_padding
from models import build
from pretrain.convert import find_model_type, tokenizer
from pretrain.inference.batching import (
    make_batches,
    name_places,
    pad_length,
    pad_rows,
    round_up_to_power,
)
from pretrain.kernels.model_hooks import make_local_hooks

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

MAX_PARTS = 2  # of a text, each of a row's length: a row reads the first, the second is its context


def shorten_pair(tokenizer: Any, texts: tuple[str, str], length: int) -> tuple[str, str]:
    """Return a pair of texts of which each has the tokens of at most `MAX_PARTS` rows.

    A tokenizer that cuts both texts returns each part of the first with each part of the second:
    37,000 rows of 128 tokens for two texts of 12,000. A row of the shorter pair reads the same.

    Args:
      tokenizer: cuts its input to rows of `length` tokens.
    """
    if min(map(len, texts)) <= length:
        return texts  # a text of so few characters has few parts
    first, second = (_shorten_text(tokenizer, text) for text in texts)
    return first, second


def _shorten_text(tokenizer: Any, text: str) -> str:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    parts = [encoding, *encoding.overflowing]
    return text if len(parts) <= MAX_PARTS else text[: parts[MAX_PARTS - 1].offsets[-1][1]]


class LabelPredictor:
    """Predicts {"label", "probability", "probabilities"} or {"score"} of tuples of texts.

    Texts that are longer than a row in training are truncated as there (data/rows), and the result
    has "cut": true.
    """

    def __init__(self, trained: Trained, batch_size: int) -> None:
        config: Any = trained.run.model
        objective: Any = trained.run.data.objective
        self.trained, self.model = trained, build(config, **make_local_hooks())
        self.params, self.labels = trained.params, config.labels
        self.pad = find_padding(trained.vocabulary)
        self.batch_size = batch_size
        self.length = objective.length
        self.tokenizer = self.make_tokenizer(trained)

    def make_tokenizer(self, trained: Trained) -> Any:
        """Return the tokenizer of a model's vocabulary, which truncates as in training."""
        family = find_model_type(trained.run.model)
        made = tokenizer.build_tokenizer(trained.vocabulary, family, is_labelled=True)
        made.enable_truncation(self.length, strategy="longest_first")
        return made

    def open_to(self, cleaned: Sequence[str | tuple[str, ...]]) -> None:
        """Let a model of characters read all words of texts."""
        parts = [(texts,) if isinstance(texts, str) else texts for texts in cleaned]
        opened = self.trained.open_to(text for texts in parts for text in texts)
        if opened is not self.trained:
            self.trained, self.tokenizer = opened, self.make_tokenizer(opened)

    def __call__(
        self, texts: Sequence[tuple[str, ...]], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each tuple; `places` name them in errors (None: their number)."""
        for parts, place in zip(texts, name_places(places)):
            if not any(map(clean_text, parts)):  # one text of a pair may be empty
                parse_text(parts[0], place)
        cleaned = [clean_texts(parts) for parts in texts]
        self.open_to(cleaned)
        shortened = [
            texts if isinstance(texts, str) else shorten_pair(self.tokenizer, texts, self.length)
            for texts in cleaned
        ]
        encodings = self.tokenizer.encode_batch(shortened)
        results: list[Any] = [None] * len(texts)
        for batch in make_batches(
            [pad_length(len(encoding)) for encoding in encodings], self.batch_size
        ):
            for index, result in zip(batch, self._score_batch([encodings[i] for i in batch])):
                results[index] = result | ({"cut": True} if encodings[index].overflowing else {})
        if num_cut := sum("cut" in result for result in results):
            print(
                f"{num_cut:,} of {len(texts):,} texts are longer than a row of {self.length} "
                "tokens and were truncated",
                file=sys.stderr,
            )
        return results

    def _score_batch(self, encodings: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the result of each row of a batch."""
        B, L = (
            round_up_to_power(len(encodings)),
            min(pad_length(max(map(len, encodings))), self.length),
        )
        tokens_BL, valid_BL = pad_rows([encoding.ids for encoding in encodings], B, L, self.pad)
        segments_BL, _ = pad_rows([encoding.type_ids for encoding in encodings], B, L, 0)
        scores_BC = jax.device_get(
            _compute_scores(
                self.model,
                self.params,
                self.trained.make_inputs(tokens_BL),
                valid_BL,
                segments_BL,
                classes=bool(self.labels),
            )
        )
        return [self._make_result(scores_C) for scores_C in scores_BC[: len(encodings)].tolist()]

    def _make_result(self, scores_C: list[float]) -> dict[str, Any]:
        """Return the result of the probabilities of the classes, or of one score."""
        if not self.labels:
            return {"score": scores_C[0]}
        probabilities = dict(zip(self.labels, scores_C))
        label = max(probabilities, key=probabilities.__getitem__)
        return {"label": label, "probability": probabilities[label], "probabilities": probabilities}


def make_blank(config: Any) -> dict[str, Any]:
    """Return the result of a blank line, which has no label or score."""
    names = ("label", "probability", "probabilities") if config.labels else ("score",)
    return dict.fromkeys(names)


def clean_texts(parts: Sequence[str]) -> str | tuple[str, str]:
    """Return the input of the tokenizer: a text, or a pair."""
    first, *others = map(clean_text, parts)
    return (first, others[0]) if others else first


@partial(jax.jit, static_argnames=("model", "classes"))
def _compute_scores(
    model: Any,
    params: Any,
    tokens_BL: jax.Array,
    valid_BL: jax.Array,
    segments_BL: jax.Array,
    *,
    classes: bool,
) -> jax.Array:
    """Return the probabilities of the classes, or the scores: float32 [B, C]."""
    logits_BC = model.apply({"params": params}, tokens_BL, valid_BL, segments_BL)
    return jax.nn.softmax(logits_BC) if classes else logits_BC


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the texts of a record.

    The place is None on the command line.
    """
    objective: Any = trained.run.data.objective
    *columns, _ = objective.columns
    return lambda record, place: read_texts(record, place or "the command line", tuple(columns))
