"""Masks filled in several steps, by models that were trained with any share of masks.

A text keeps its own words; each [MASK] is filled, the most certain first. A text without [MASK] is
continued by so many masks.

B batch   L row length   P masks of a row   S steps
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from data.mixed import split_objective
from models.generation.beam_search import BeamSearch
from models.generation.decoding import fold_in_rows
from models.generation.sampling import Greedy
from models.generation.unmasking import Filled, fill_masks, plan_steps
from pretrain.inference.batching import (
    make_batches,
    name_places,
    pad_length,
    pad_rows,
    quote_text,
    round_up_to_power,
)
from pretrain.inference.fill_mask import MaskFiller
from pretrain.workdir.trained import Trained

MAX_NEW = 64  # masks that continue a text, if no number is given


def fills_in_steps(trained: Trained) -> bool:
    """Return whether a model was trained with any share of masks, by itself or in a mixture."""
    parts = split_objective(trained.run.data.objective).values()
    return any(part.masks_any_share for part in parts)


class StepFiller(MaskFiller):
    """Fills masks in steps: calling it with texts returns each text filled, and in which order."""

    BLANK: ClassVar[Mapping[str, Any]] = {"filled": "", "fills": []}

    def __init__(
        self,
        trained: Trained,
        length: int | None,
        batch_size: int,
        strategy: Greedy | BeamSearch = Greedy(),
        steps: int | None = None,
        block: int | None = None,
        no_repeat_ngram: int | None = None,
        seed: int = 0,
    ) -> None:
        """Build the model.

        Args:
          length: masks that continue a text without any; None: what a training row has left, at
            most MAX_NEW.
          strategy: how the token of a mask is chosen.
          steps, block: see `models.generation.unmasking.plan_steps`.
          seed: of a strategy that samples.

        Raises:
          ValueError: an option of models that write from left to right.
        """
        if isinstance(strategy, BeamSearch) or no_repeat_ngram is not None:
            option = "--no-repeat-ngram" if no_repeat_ngram is not None else "--beams"
            raise ValueError(
                f"{option} is for models that write from left to right; this one fills masks in "
                "any order: use --steps, --block, --temperature, --top-k or --top-p"
            )
        super().__init__(trained, 1, batch_size)
        self.num_new, self.strategy, self.steps, self.block = length, strategy, steps, block
        self.seed = seed
        parts = split_objective(trained.run.data.objective).values()
        self.row_length = max(part.axis_sizes()["L"] for part in parts if part.masks_any_share)
        special = np.asarray(trained.vocabulary.special)
        config: Any = trained.run.model
        self.allowed_V = np.zeros(config.vocab, bool)
        self.allowed_V[: len(special)] = ~special

    def __call__(
        self, texts: Sequence[str], places: Sequence[str | None], first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"filled": text, "fills": the token of each mask} for each text.

        A token has its `step`, from 1, its `span` in the filled text, `word`, `probability`,
        `piece` and `id`.

        Args:
          first: number of texts before these; a row's random draws depend on its number.

        Raises:
          ValueError: a text that is too long, or has no room for a mask; begins with its place.
        """
        named = list(zip(texts, name_places(places), strict=True))
        texts = [self._add_masks(text, place) for text, place in named]
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        for text, (_, place), row in zip(texts, named, rows, strict=True):
            self._check_length(text, place, row)
        self.notice.report(max(map(len, rows), default=0))
        masks = [
            [i for i, token in enumerate(row) if token == self.vocabulary.mask] for row in rows
        ]
        results: list[Any] = [None] * len(rows)
        shapes = [
            (pad_length(len(row)), round_up_to_power(len(mask))) for row, mask in zip(rows, masks)
        ]
        for batch in make_batches(shapes, self.batch_size):
            own = [rows[i] for i in batch], [masks[i] for i in batch]
            filled = self._fill_rows(*own, [first + i for i in batch])
            for b, i in enumerate(batch):
                number = len(masks[i])
                columns = (array[b, :number].tolist() for array in filled)
                results[i] = self._describe_fills(texts[i], list(zip(*columns, strict=True)))
        return results

    def _add_masks(self, text: str, place: str) -> str:
        """Return a text that has masks: its own, or such that continue it."""
        if self.mask_piece in text:
            return text
        used = len(self.tokenizer.encode(text).ids)
        number = self.num_new or min(MAX_NEW, self.row_length - used)
        if number < 1:
            raise ValueError(
                f"{place}: {used} tokens fill a training row of {self.row_length}; put "
                f"{self.mask_piece} where it should be filled, or give --length: {quote_text(text)}"
            )
        return " ".join([*filter(None, [text]), *[self.mask_piece] * number])

    def _fill_rows(
        self, rows: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> Filled:
        """Return the fills of rows of similar length, as NumPy arrays."""
        B, P = round_up_to_power(len(rows)), round_up_to_power(max(map(len, masks)))
        L = min(pad_length(max(map(len, rows))), self.length)
        tokens_BL, valid_BL = pad_rows(rows, B, L, self.pad)
        # A slot that is not used has a mask of its row, so that no other token counts as one.
        positions_BP, _ = pad_rows(
            [[*mask, *[mask[0]] * (P - len(mask))] for mask in masks], B, P, 0
        )
        plans = [plan_steps(len(mask), self.steps, self.block) for mask in masks]
        plan_SB2 = np.zeros((round_up_to_power(max(map(len, plans))), B, 2), np.int32)
        for b, plan in enumerate(plans):
            plan_SB2[: len(plan), b] = plan
        filled = _fill(
            self.model,
            self.params,
            tokens_BL,
            valid_BL,
            self._make_token_types(tokens_BL),
            positions_BP,
            plan_SB2,
            fold_in_rows(self.seed, jnp.asarray([*numbers, *[0] * (B - len(rows))])),
            self.allowed_V,
            strategy=self.strategy,
        )
        return jax.device_get(filled)

    def _describe_fills(self, text: str, fills: Sequence[tuple[int, float, int]]) -> dict[str, Any]:
        """Return the result of a text; a fill is (id, probability, step).

        Masks with nothing but blanks between them are written together, as their tokens say.
        """
        filled, answers, gaps = "", [], text.split(self.mask_piece)
        begins = [k for k in range(len(fills)) if not k or gaps[k].strip()]
        for begin, end in itertools.pairwise([*begins, len(fills)]):
            filled += gaps[begin]
            if not self._starts_word(fills[begin][0]):
                filled = filled.rstrip(" ")
            written, spans = self._write_together([i for i, *_ in fills[begin:end]])
            for (i, probability, step), span in zip(fills[begin:end], spans, strict=True):
                place = {"step": step, "span": [len(filled) + place for place in span]}
                answers.append(place | self._make_answer(probability, i))
            filled += written
        return {"filled": filled + gaps[-1], "fills": answers}

    def _write_together(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of consecutive tokens, and the span of each in it, without blanks."""
        decode = self.vocabulary.decode
        texts = [decode(ids[:end]).lstrip().removeprefix("##") for end in range(1, len(ids) + 1)]
        written, spans, last = texts[-1].rstrip(), [], 0
        for text in texts:
            # A token of a few bytes may change the letter that its text ends with.
            end = max(last, len(os.path.commonprefix([text, written])))  # noqa: RUF071 - letters
            begin = end - len(written[last:end].lstrip())
            spans.append((begin, end))
            last = end
        return written, spans


@partial(jax.jit, static_argnames=("model", "strategy"))
def _fill(
    model: Any,
    params: Any,
    tokens_BL: jax.Array,
    valid_BL: jax.Array,
    types_BL: jax.Array | None,
    positions_BP: jax.Array,
    plan_SB2: jax.Array,
    key_B: jax.Array,
    allowed_V: jax.Array,
    *,
    strategy: Greedy,
) -> Filled:
    """Return `fill_masks` of a model; plan_SB2 has the open masks and the counts of each step."""

    def compute_logits(tokens_BL: jax.Array) -> jax.Array:
        logits_BPV, _ = model.apply({"params": params}, tokens_BL, valid_BL, types_BL, positions_BP)
        return logits_BPV

    return fill_masks(
        compute_logits,
        tokens_BL,
        positions_BP,
        plan_SB2[..., 0],
        plan_SB2[..., 1],
        key_B,
        allowed_V,
        strategy,
    )
