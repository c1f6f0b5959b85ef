"""Labels and scores of texts and pairs by a fine-tuned model.

Rows are gathered by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   C classes
"""

import sys
from functools import partial
from typing import Any

import jax

from data.examples.labelled import text_of
from data.examples.records import read_texts
from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, fill, named, padded, power


class Labels:
    """Calling it with texts, each a tuple of one or two, gives {"label", "probability", "probabilities"} or {"score"} of each.

    What is longer than a row of its training is cut as there (data/rows/labelled.py), and the result has "cut": true.
    """

    def __init__(self, trained, batch_size):
        self.model, self.params, self.labels = (
            build(trained.run.model, **make_local_hooks()),
            trained.params,
            trained.run.model.labels,
        )
        self.pad, self.batch_size = trained.vocabulary.pad, batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.length = trained.run.data.objective.length
        self.tokenizer.enable_truncation(self.length, strategy="longest_first")

    def __call__(self, texts, places):
        """[result] of texts; `places` name them in errors (None: by their number)."""
        for parts, place in zip(texts, named(places)):
            for part in parts:
                text_of(part, place)
        encodings = self.tokenizer.encode_batch([clean(parts) for parts in texts])
        results: list[Any] = [None] * len(texts)
        for batch in batches([padded(len(encoding)) for encoding in encodings], self.batch_size):
            for index, result in zip(batch, self._score([encodings[i] for i in batch])):
                results[index] = result | ({"cut": True} if encodings[index].overflowing else {})
        if cut := sum("cut" in result for result in results):
            print(
                f"{cut:,} of {len(texts):,} texts are longer than a row of {self.length} tokens and were cut",
                file=sys.stderr,
            )
        return results

    def _score(self, encodings):
        B, L = power(len(encodings)), min(padded(max(map(len, encodings))), self.length)
        tokens_BL, valid_BL = fill([encoding.ids for encoding in encodings], B, L, self.pad)
        segments_BL, _ = fill([encoding.type_ids for encoding in encodings], B, L, 0)
        scores_BC = jax.device_get(
            _scores(
                self.model, self.params, tokens_BL, valid_BL, segments_BL, classes=bool(self.labels)
            )
        )
        return [self._result(scores_C) for scores_C in scores_BC[: len(encodings)].tolist()]

    def _result(self, scores_C):
        if not self.labels:
            return {"score": scores_C[0]}
        probabilities = dict(zip(self.labels, scores_C))
        label = max(probabilities, key=probabilities.__getitem__)
        return {"label": label, "probability": probabilities[label], "probabilities": probabilities}


def clean(parts):
    """What the tokenizer is given: a text, or a pair."""
    texts = tuple(text_of(part, "") for part in parts)
    return texts[0] if len(texts) == 1 else texts


@partial(jax.jit, static_argnames=("model", "classes"))
def _scores(model, params, tokens_BL, valid_BL, segments_BL, *, classes):
    """Probabilities of the classes, or scores as they are: float32 [B, C]."""
    logits_BC = model.apply({"params": params}, tokens_BL, valid_BL, segments_BL)
    return jax.nn.softmax(logits_BC) if classes else logits_BC


def reader(trained):
    """A function (record, place) -> the texts in it; place: None on the command line."""
    *columns, _ = trained.run.data.objective.columns
    return lambda record, place: read_texts(record, place or "the command line", tuple(columns))
