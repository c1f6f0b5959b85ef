"""Prediction of masked tokens, one piece for each [MASK], and of replaced words (ELECTRA).

Rows are batched by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   P masks of a row   K answers   V vocabulary
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax

from models import build
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
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.workdir.trained import Trained

Ranked = list[tuple[float, int]]  # (probability, id), the likeliest first


class MaskFiller:
    """Fills masks: calling it with texts returns the K likeliest pieces of every mask.

    BLANK: the result of a blank line.
    """

    BLANK: ClassVar[Mapping[str, Any]] = {"filled": "", "masks": []}

    def __init__(self, trained: Trained, top: int, batch_size: int) -> None:
        """Build the model; top: K, the number of pieces for a mask."""
        config: Any = trained.run.model
        self.model, self.params = build(config, **make_local_hooks()), trained.params
        self.vocabulary, self.length = trained.vocabulary, config.length
        self.pad: Any = trained.vocabulary.pad
        self.notice = LengthNotice(trained)
        self.top, self.batch_size = min(top, trained.vocabulary.size), batch_size
        self.tokenizer = tokenizer.build_tokenizer(trained.vocabulary, find_model_type(config))
        mask_id: Any = trained.vocabulary.mask
        self.mask_piece = trained.vocabulary.pieces[mask_id]

    def __call__(self, texts: Sequence[str], places: Sequence[str | None]) -> list[dict[str, Any]]:
        """Return {"filled": text, "masks": the K answers of each mask} for each text.

        Raises ValueError, which begins with the place, for a text without a mask or a text that is
        too long. Probabilities are those in the whole vocabulary.
        """
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        masks = [
            [i for i, token in enumerate(row) if token == self.vocabulary.mask] for row in rows
        ]
        for text, place, row, mask in zip(texts, name_places(places), rows, masks):
            if not mask:
                raise ValueError(f"{place}: there is no {self.mask_piece} in {quote_text(text)}")
            self._check_length(text, place, row)
        self.notice.report(max(map(len, rows), default=0))
        answers: list[Any] = [None] * len(texts)
        shapes = [
            (pad_length(len(row)), round_up_to_power(len(mask))) for row, mask in zip(rows, masks)
        ]
        for batch in make_batches(shapes, self.batch_size):
            ranked = self.score_masks(
                [rows[i] for i in batch],
                [masks[i] for i in batch],
                self.top,
                0,
                self.vocabulary.size,
            )
            for index, answer in zip(batch, ranked):
                answers[index] = answer
        return [self._make_result(text, answer) for text, answer in zip(texts, answers)]

    def _check_length(self, text: str, place: str, row: Sequence[int]) -> None:
        """Raise ValueError for a text that is too long."""
        if len(row) > self.length:
            raise ValueError(
                f"{place}: {len(row)} tokens with [CLS] and [SEP], the model reads at most "
                f"{self.length}: {quote_text(text)}"
            )

    def _make_token_types(self, tokens_BL: jax.Array) -> jax.Array | None:
        """Return the token types of rows; None for rows of one text."""
        return None

    def score_masks(
        self,
        rows: Sequence[Sequence[int]],
        masks: Sequence[Sequence[int]],
        top: int,
        begin: int,
        end: int,
    ) -> list[list[Ranked]]:
        """Return the `top` likeliest of the ids [begin, end) for each mask of each row."""
        B, P = round_up_to_power(len(rows)), round_up_to_power(max(map(len, masks)))
        L = min(pad_length(max(map(len, rows))), self.length)
        tokens_BL, valid_BL = pad_rows(rows, B, L, self.pad)
        # A slot that is not used has a mask of its row, so that no other token counts as one.
        masks_P = [[*mask, *[mask[0]] * (P - len(mask))] for mask in masks]
        positions_BP, _ = pad_rows(masks_P, B, P, 0)
        likeliest = _find_likeliest(
            self.model,
            self.params,
            tokens_BL,
            valid_BL,
            self._make_token_types(tokens_BL),
            positions_BP,
            top=top,
            begin=begin,
            end=end,
        )
        probability_BPK, id_BPK = jax.device_get(likeliest)
        return [
            [
                list(zip(probability_BPK[b, p].tolist(), id_BPK[b, p].tolist()))
                for p in range(len(mask))
            ]
            for b, mask in enumerate(masks)
        ]

    def _make_result(self, text: str, answer: Sequence[Ranked]) -> dict[str, Any]:
        """Return the result of a text: the text with its masks filled, and all answers."""
        gaps = text.split(self.mask_piece)
        # Only a tokenizer that rewrites its own special tokens could fail here.
        if len(gaps) != len(answer) + 1:
            raise ValueError(
                f"{len(answer)} masks were read in a text with {len(gaps) - 1}: {quote_text(text)}"
            )
        filled = gaps[0]
        for ranked, text_after in zip(answer, gaps[1:]):
            best = ranked[0][1]
            if not self._starts_word(best):
                filled = filled.rstrip(" ")
            filled += self.vocabulary.decode([best]).strip().removeprefix("##") + text_after
        masks = [
            [self._make_answer(probability, i) for probability, i in ranked] for ranked in answer
        ]
        return {"filled": filled, "masks": masks}

    def _make_answer(self, probability: float, i: int) -> dict[str, Any]:
        """Return the JSON value of an answer."""
        word = self.vocabulary.format_token(i)
        begins_N, _ = self.vocabulary.script_boundaries
        word = word if self._starts_word(i) or begins_N[i] else f"…{word}"
        return {
            "word": word,
            "probability": probability,
            "piece": self.vocabulary.pieces[i],
            "id": i,
        }

    def _starts_word(self, i: int) -> bool:
        """Return whether a piece begins a word."""
        return bool(self.vocabulary.starts_word[i])


@partial(jax.jit, static_argnames=("model", "top", "begin", "end"))
def _find_likeliest(
    model: Any,
    params: Any,
    tokens_BL: jax.Array,
    valid_BL: jax.Array,
    types_BL: jax.Array | None,
    positions_BP: jax.Array,
    *,
    top: int,
    begin: int,
    end: int,
) -> tuple[jax.Array, jax.Array]:
    """Return (probabilities, ids) [B, P, K] of the likeliest of the ids [begin, end).

    Rows of the model's table after the vocabulary belong to no piece.
    """
    logits_BPV, _ = model.apply({"params": params}, tokens_BL, valid_BL, types_BL, positions_BP)
    probabilities_BPV = jax.nn.softmax(logits_BPV, axis=-1)[..., begin:end]
    probability_BPK, id_BPK = jax.lax.top_k(probabilities_BPV, top)
    return probability_BPK, begin + id_BPK


class ReplacementDetector(MaskFiller):
    """ELECTRA: its generator fills masks; in texts without masks, its discriminator scores words.

    The score of a word is the probability that it was replaced.
    """

    BLANK = {"filled": "", "judged": []}

    def __call__(self, texts: Sequence[str], places: Sequence[str | None]) -> list[dict[str, Any]]:
        """Return the result of `MaskFiller`; without masks, {"filled": text, "judged": words}."""
        unmasked = [i for i, text in enumerate(texts) if self.mask_piece not in text]
        masked = sorted(set(range(len(texts))) - set(unmasked))
        names, results = name_places(places), {}
        for indices, answer in ((masked, super().__call__), (unmasked, self._detect_replaced)):
            answers = answer([texts[i] for i in indices], [names[i] for i in indices])
            results |= zip(indices, answers, strict=True)
        return [results[i] for i in range(len(texts))]

    def _detect_replaced(self, texts: Sequence[str], places: Sequence[str]) -> list[dict[str, Any]]:
        """Return the discriminator's scores of the words of each text."""
        encodings = self.tokenizer.encode_batch(list(texts))
        for text, place, encoding in zip(texts, places, encodings):
            if all(encoding.special_tokens_mask):
                raise ValueError(f"{place}: there is no word in {quote_text(text)}")
            self._check_length(text, place, encoding.ids)
        scores: list[Any] = [None] * len(texts)
        for batch in make_batches(
            [pad_length(len(encoding)) for encoding in encodings], self.batch_size
        ):
            rows = [encodings[i].ids for i in batch]
            L = min(pad_length(max(map(len, rows))), self.length)
            tokens_BL, valid_BL = pad_rows(rows, round_up_to_power(len(rows)), L, self.pad)
            replaced_BL = jax.device_get(
                _compute_replaced(self.model, self.params, tokens_BL, valid_BL)
            )
            for index, replaced_L in zip(batch, replaced_BL.tolist()):
                scores[index] = replaced_L
        return [
            {"filled": text, "judged": self._list_words(text, encoding, replaced_L)}
            for text, encoding, replaced_L in zip(texts, encodings, scores)
        ]

    def _list_words(
        self, text: str, encoding: Any, replaced_L: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Return [{"word", "probability"}] of a text; a word has the maximum of its pieces."""
        words, is_closed = [], True
        begins_N, ends_N = self.vocabulary.script_boundaries
        for i, (begin, end), special, probability in zip(
            encoding.ids, encoding.offsets, encoding.special_tokens_mask, replaced_L
        ):
            if special:
                continue
            if self._starts_word(i) or begins_N[i] or is_closed:
                words.append((begin, end, probability))
            else:
                words[-1] = words[-1][0], end, max(words[-1][2], probability)
            is_closed = ends_N[i]
        return [
            {"word": text[begin:end].strip(), "probability": probability}
            for begin, end, probability in words
        ]


@partial(jax.jit, static_argnames=("model",))
def _compute_replaced(
    model: Any, params: Any, tokens_BL: jax.Array, valid_BL: jax.Array
) -> jax.Array:
    """Return the probability [B, L] of each token that it was replaced."""
    logits_BL = model.apply({"params": params}, tokens_BL, valid_BL, method="discriminate")
    return jax.nn.sigmoid(logits_BL)
