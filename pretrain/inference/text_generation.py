"""Text generation: spans for <extra_id_i>, translations, restored texts, and continuations.

B batch   M prompt length   T generated length
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from models import build
from models.generation.beam_search import BeamSearch
from models.generation.decoding import continue_prompts, generate, unstack_model
from models.generation.sampling import Greedy
from pretrain.convert import find_model_type, tokenizer
from pretrain.inference.batching import (
    make_batches,
    name_places,
    pad_length,
    pad_rows,
    quote_text,
    round_up_to_power,
)
from pretrain.inference.length_notice import LengthNotice
from pretrain.inference.modes import add_mode, list_modes
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.workdir.trained import Trained

Places = Sequence[str | None]


class TextWriter:
    """The base of all text generators: a model unstacked for fast decoding, applied in batches.

    BLANK: the result of a blank line.
    """

    BLANK: ClassVar[Mapping[str, Any]] = {"written": ""}

    def __init__(
        self,
        trained: Trained,
        length: int,
        batch_size: int,
        strategy: Greedy | BeamSearch = Greedy(),
        no_repeat_ngram: int | None = None,
        seed: int = 0,
    ) -> None:
        """Build the model.

        Args:
          length: the largest number of tokens to generate.
          strategy, no_repeat_ngram, seed: see `models.generation.decoding.generate`.
        """
        config: Any = trained.run.model
        self.model, self.params = unstack_model(build(config, **make_local_hooks()), trained.params)
        self.vocabulary, self.length, self.batch_size = trained.vocabulary, length, batch_size
        self.tokenizer = tokenizer.build_tokenizer(trained.vocabulary, find_model_type(config))
        self.start = config.start  # first input id of the decoder
        self.notice = LengthNotice(trained)
        self.strategy, self.no_repeat_ngram, self.seed = strategy, no_repeat_ngram, seed
        self.modes = list_modes(trained.run.data.objective, trained.vocabulary)
        # Every model that generates has these ids.
        self.pad: Any = trained.vocabulary.pad
        self.end: Any = trained.vocabulary.eos

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]

    def generate_ids(self, rows: Sequence[list[int]], first: int) -> list[list[int]]:
        """Return the ids that the model generates for each row, up to the end of the text.

        first: the number of the first row; a row's random draws depend on its number.
        """
        generated: list[Any] = [None] * len(rows)
        for batch in make_batches([pad_length(len(row)) for row in rows], self.batch_size):
            # Copies of the first row complete the batch: they end when it does.
            indices = batch + batch[:1] * (round_up_to_power(len(batch)) - len(batch))
            numbers_B = np.array([first + i for i in indices])
            ids_BT = jax.device_get(
                self.generate_batch([rows[i] for i in indices], numbers_B)
            ).tolist()
            for index, ids in zip(batch, ids_BT):
                generated[index] = cut_at_end(self.end, ids)
        return generated

    def generate_batch(self, rows: Sequence[list[int]], rows_B: np.ndarray) -> jax.Array:
        """Return the ids that an encoder-decoder generates, int32 [B, T]; rows_B: row numbers."""
        config, M = self.model.config, pad_length(max(map(len, rows)))
        M = min(M, config.length or M)
        inputs_BM, valid_BM = pad_rows(rows, len(rows), M, self.pad)
        return generate(
            self.model,
            self.params,
            inputs_BM,
            valid_BM,
            length=self.length,
            strategy=self.strategy,
            start=self.start,
            end=self.end,
            pad=self.pad,
            no_repeat_ngram=self.no_repeat_ngram,
            seed=self.seed,
            rows_B=rows_B,
        )

    def decode_text(self, ids: Sequence[int]) -> str:
        """Return the text of ids; an id beyond the vocabulary is shown as unknown.

        A model that was trained little may generate such ids.
        """
        known: list[Any] = [i if i < self.vocabulary.size else self.vocabulary.unk for i in ids]
        return self.vocabulary.decode(known).strip()


def cut_at_end(end: int, ids: list[int]) -> list[int]:
    """Return the ids before the first `end`."""
    return ids[: ids.index(end)] if end in ids else ids


class SpanWriter(TextWriter):
    """Fills spans: calling it with texts returns the text that replaces each sentinel."""

    BLANK = {"filled": "", "spans": {}}

    @functools.cached_property
    def sentinel_pieces(self) -> dict[int, str]:
        """{id of a sentinel: its piece}."""
        return {i: self.vocabulary.pieces[i] for i in self.vocabulary.sentinels}

    def __call__(
        self, texts: Sequence[str], places: Places, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"filled": text, "spans": {sentinel: text or None}} for each text."""
        rows = [add_mode(row, self.modes) for row in self.encode_texts(texts)]
        for text, place, row in zip(texts, name_places(places), rows):
            if not any(i in self.sentinel_pieces for i in row):
                raise ValueError(f"{place}: there is no <extra_id_0> in {quote_text(text)}")
        spans = [
            self.split_spans(row, ids) for row, ids in zip(rows, self.generate_ids(rows, first))
        ]
        return [
            {"filled": fill_spans(text, span), "spans": span} for text, span in zip(texts, spans)
        ]

    def split_spans(self, row: Sequence[int], written: Sequence[int]) -> dict[str, str | None]:
        """Return {sentinel of the input: the text generated after it, or None}."""
        found, current = {}, None
        for i in written:
            if i in self.sentinel_pieces:
                current = found.setdefault(i, [])
            elif current is not None:
                current.append(i)
        sentinels = dict.fromkeys(i for i in row if i in self.sentinel_pieces)
        return {
            self.sentinel_pieces[i]: self.decode_text(found[i]) if i in found else None
            for i in sentinels
        }


def fill_spans(text: str, spans: Mapping[str, str | None]) -> str:
    """Return a text with its sentinels replaced by their spans; None leaves a sentinel."""
    for sentinel, span in spans.items():
        text = text if span is None else text.replace(sentinel, span)
    return text


class TranslationWriter(TextWriter):
    """Transforms texts: calling it with texts returns what the model generates for each."""

    def __call__(
        self, texts: Sequence[str], places: Places, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"written": generated text} for each text."""
        rows = self.encode_texts(texts)
        for text, place, row in zip(texts, name_places(places), rows):
            if len(row) < 2:
                raise ValueError(f"{place}: there is nothing to translate in {quote_text(text)}")
        return [{"written": self.decode_text(ids)} for ids in self.generate_ids(rows, first)]


class RepairWriter(TextWriter):
    """Restores texts (BART): the model generates the whole text, without its <mask>s."""

    BLANK = {"filled": ""}

    def __call__(
        self, texts: Sequence[str], places: Places, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"filled": restored text} for each text."""
        rows, longest = self.encode_texts(texts), self.model.config.length
        for text, place, row in zip(texts, name_places(places), rows):
            if len(row) < 3:
                raise ValueError(f"{place}: there is nothing to mend in {quote_text(text)}")
            if max(len(row), self.length) > longest:
                raise ValueError(
                    f"{place}: {len(row)} tokens, up to {self.length} to write (--length), the "
                    f"model's rows are {longest}: {quote_text(text)}"
                )
        special = self.vocabulary.special
        return [
            {"filled": self.decode_text([i for i in ids if i >= len(special) or not special[i]])}
            for ids in self.generate_ids(rows, first)
        ]


class ContinuationWriter(TextWriter):
    """Continues texts: calling it with texts returns the continuation of each.

    An empty text starts with the token that ends a text, as in GPT-2. GPT's vocabulary has no such
    token, so that GPT cannot continue an empty text.
    """

    BLANK = {"filled": "", "written": ""}

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens that the model reads; None: no limit."""
        return self.model.config.length

    def __call__(
        self, texts: Sequence[str], places: Places, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"filled": whole text, "written": continuation} for each text."""
        beginning = [] if self.vocabulary.eos is None else [self.vocabulary.eos]
        rows = [row or beginning for row in self.encode_texts(texts)]
        for text, place, row in zip(texts, name_places(places), rows):
            if self.vocabulary.mask is not None and self.vocabulary.mask in row:
                mask = self.vocabulary.pieces[self.vocabulary.mask]
                raise ValueError(
                    f"{place}: this model continues texts and fills no {mask}: {quote_text(text)}"
                )
            if not row:
                raise ValueError(
                    f"{place}: there is nothing to continue in {quote_text(text)}, and the "
                    "vocabulary has no token that begins a text"
                )
            if self.max_length is not None and len(row) + self.length > self.max_length:
                raise ValueError(
                    f"{place}: {len(row)} tokens and {self.length} more (--length), the model "
                    f"reads at most {self.max_length}: {quote_text(text)}"
                )
        self.notice.report(max(map(len, rows), default=0) + self.length)
        more = [
            self.decode_continuation(row, ids)
            for row, ids in zip(rows, self.generate_ids(rows, first))
        ]
        return [
            {"filled": text + written, "written": written} for text, written in zip(texts, more)
        ]

    def generate_batch(self, rows: Sequence[list[int]], rows_B: np.ndarray) -> jax.Array:
        """Return the ids that a decoder generates, int32 [B, T]; rows_B: row numbers."""
        M = pad_length(max(map(len, rows)))
        if self.max_length is not None:
            M = min(M, self.max_length - self.length)
        tokens_BM, valid_BM = pad_rows(rows, len(rows), M, 0)
        return continue_prompts(
            self.model,
            self.params,
            tokens_BM,
            valid_BM.sum(axis=1),
            length=self.length,
            strategy=self.strategy,
            end=self.end,
            size=self.vocabulary.size,
            no_repeat_ngram=self.no_repeat_ngram,
            seed=self.seed,
            rows_B=rows_B,
        )

    def decode_continuation(self, row: list[int], ids: list[int]) -> str:
        """Return the text that ids add to a row; a piece's text depends on the pieces before it."""
        return self.vocabulary.decode(row + ids)[len(self.vocabulary.decode(row)) :]
