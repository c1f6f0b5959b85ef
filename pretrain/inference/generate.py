"""Texts that a trained model writes: a span for each <extra_id_i>, a translation, a damaged text whole, or what follows a text.

B batch   M prompt length   T written length
"""

import functools
from typing import Any

import jax
import numpy as np

from models import build
from models.generation.generate import extend, generate, unstack_model
from models.generation.sampling import Greedy
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, cut, fill, named, padded, power
from pretrain.inference.modes import add_mode, list_modes


class Writer:
    """What all writers share: a model whose steps are fast, and rows that are written behind in batches.

    strategy, no_repeat_ngram, seed: as in `models.generation.generate.generate`.
    """

    def __init__(
        self, trained, length, batch_size, strategy=Greedy(), no_repeat_ngram=None, seed=0
    ):
        model = build(trained.run.model, **make_local_hooks())
        self.model, self.params = unstack_model(model, trained.params)
        self.vocabulary, self.length, self.batch_size = trained.vocabulary, length, batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.start = getattr(trained.run.model, "start", 0)  # what an encoder-decoder reads first
        self.strategy, self.no_repeat_ngram, self.seed = strategy, no_repeat_ngram, seed
        self.modes = list_modes(trained.run.data.objective, trained.vocabulary)

    def rows(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]

    def written(self, rows, first):
        """What is written behind each row, without its end. first: the number of the first row, by which it draws."""
        written: list[Any] = [None] * len(rows)
        for batch in batches([padded(len(row)) for row in rows], self.batch_size):
            # Copies fill the batch: they end when their row does.
            chosen = batch + batch[:1] * (power(len(batch)) - len(batch))
            numbers_B = np.array([first + i for i in chosen])
            written_BT = jax.device_get(self.decode([rows[i] for i in chosen], numbers_B)).tolist()
            for index, ids in zip(batch, written_BT):
                written[index] = until(self.vocabulary.eos, ids)
        return written

    def decode(self, rows, rows_B):
        """Return what an encoder-decoder writes for the rows, whose numbers are `rows_B`: int32 [B, T]."""
        config, M = self.model.config, padded(max(map(len, rows)))
        inputs_BM, valid_BM = fill(
            rows, len(rows), min(M, getattr(config, "length", M)), self.vocabulary.pad
        )
        return generate(
            self.model,
            self.params,
            inputs_BM,
            valid_BM,
            length=self.length,
            strategy=self.strategy,
            start=self.start,
            end=self.vocabulary.eos,
            pad=self.vocabulary.pad,
            no_repeat_ngram=self.no_repeat_ngram,
            seed=self.seed,
            rows_B=rows_B,
        )

    def text(self, ids):
        """The ids as text; an id beyond the vocabulary, which a little-trained model may write, is shown as unknown."""
        known = [i if i < self.vocabulary.size else self.vocabulary.unk for i in ids]
        return self.vocabulary.decode(known).strip()


def until(end, ids):
    """The ids in front of the first `end`."""
    return ids[: ids.index(end)] if end in ids else ids


class Spans(Writer):
    """Calling it with texts gives what the model writes for every sentinel."""

    @functools.cached_property
    def names(self):
        """{id of a sentinel: its piece}."""
        return {i: self.vocabulary.pieces[i] for i in self.vocabulary.sentinels}

    def __call__(self, texts, places, first=0):
        rows = [add_mode(row, self.modes) for row in self.rows(texts)]
        for text, place, row in zip(texts, named(places), rows):
            if not any(i in self.names for i in row):
                raise ValueError(f"{place}: there is no <extra_id_0> in {cut(text)}")
        spans = [self.spans(row, ids) for row, ids in zip(rows, self.written(rows, first))]
        return [{"filled": close(text, span), "spans": span} for text, span in zip(texts, spans)]

    def spans(self, row, written):
        """{sentinel of the input: the text written behind it, None if it was not written}."""
        found, current = {}, None
        for i in written:
            if i in self.names:
                current = found.setdefault(i, [])
            elif current is not None:
                current.append(i)
        asked = dict.fromkeys(i for i in row if i in self.names)
        return {self.names[i]: self.text(found[i]) if i in found else None for i in asked}


def close(text, spans):
    for sentinel, span in spans.items():
        text = text if span is None else text.replace(sentinel, span)
    return text


class Translations(Writer):
    """Calling it with texts gives what the model writes for each: the other language's, or, of a damaged text, the whole one."""

    def __call__(self, texts, places, first=0):
        rows = self.rows(texts)
        for text, place, row in zip(texts, named(places), rows):
            if len(row) < 2:
                raise ValueError(f"{place}: there is nothing to translate in {cut(text)}")
        return [{"written": self.text(ids)} for ids in self.written(rows, first)]


class Repairs(Writer):
    """Calling it with texts gives each as the model takes it to have been: what <mask> stands for is written, and so is all else."""

    def __call__(self, texts, places, first=0):
        rows, longest = self.rows(texts), self.model.config.length
        for text, place, row in zip(texts, named(places), rows):
            if len(row) < 3:
                raise ValueError(f"{place}: there is nothing to mend in {cut(text)}")
            if max(len(row), self.length) > longest:
                raise ValueError(
                    f"{place}: {len(row)} tokens, up to {self.length} to write (--length), the model's rows are {longest}: {cut(text)}"
                )
        special = self.vocabulary.special
        return [
            {"filled": self.text([i for i in ids if i >= len(special) or not special[i]])}
            for ids in self.written(rows, first)
        ]


class Continuations(Writer):
    """Calling it with texts gives what the model writes behind each, up to the end of the text.

    An empty text is begun by the token that ends one, as GPT-2's were; a vocabulary without that (GPT's) cannot begin.
    """

    @property
    def longest(self):
        return self.model.config.length

    def __call__(self, texts, places, first=0):
        rows = [
            row or [i for i in [self.vocabulary.eos] if i is not None] for row in self.rows(texts)
        ]
        for text, place, row in zip(texts, named(places), rows):
            if self.vocabulary.mask is not None and self.vocabulary.mask in row:
                raise ValueError(
                    f"{place}: this model continues texts and fills no {self.vocabulary.pieces[self.vocabulary.mask]}: {cut(text)}"
                )
            if not row:
                raise ValueError(
                    f"{place}: there is nothing to continue in {cut(text)}, and the vocabulary has no token that begins a text"
                )
            if len(row) + self.length > self.longest:
                raise ValueError(
                    f"{place}: {len(row)} tokens and {self.length} more (--length), the model reads at most {self.longest}: {cut(text)}"
                )
        more = [self.behind(row, ids) for row, ids in zip(rows, self.written(rows, first))]
        return [
            {"filled": text + written, "written": written} for text, written in zip(texts, more)
        ]

    def decode(self, rows, rows_B):
        """Return what a decoder writes behind the rows, whose numbers are `rows_B`: int32 [B, T]."""
        tokens_BM, valid_BM = fill(
            rows, len(rows), min(padded(max(map(len, rows))), self.longest - self.length), 0
        )
        return extend(
            self.model,
            self.params,
            tokens_BM,
            valid_BM.sum(axis=1),
            length=self.length,
            strategy=self.strategy,
            end=self.vocabulary.eos,
            size=self.vocabulary.size,
            no_repeat_ngram=self.no_repeat_ngram,
            seed=self.seed,
            rows_B=rows_B,
        )

    def behind(self, row, ids):
        """What the ids add to the text of the row: how a piece reads depends on what stands before it."""
        return self.vocabulary.decode(row + ids)[len(self.vocabulary.decode(row)) :]
