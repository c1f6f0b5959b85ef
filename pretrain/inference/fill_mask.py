"""Gaps in a text, closed by a trained model with one piece for each [MASK]; and words that do not belong there.

Rows are gathered by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   P masks of a row   K answers   V vocabulary
"""

from functools import partial
from typing import Any

import jax

from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, cut, fill, named, padded, power


class Masks:
    """Calling it with texts gives the K likeliest pieces of every mask, with their probabilities in the vocabulary."""

    def __init__(self, trained, top, batch_size):
        self.model, self.params = build(trained.run.model, **make_local_hooks()), trained.params
        self.vocabulary, self.length = trained.vocabulary, trained.run.model.length
        self.top, self.batch_size = min(top, trained.vocabulary.size), batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.mask = trained.vocabulary.pieces[trained.vocabulary.mask]

    def __call__(self, texts, places):
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        masks = [
            [i for i, token in enumerate(row) if token == self.vocabulary.mask] for row in rows
        ]
        for text, place, row, mask in zip(texts, named(places), rows, masks):
            if not mask:
                raise ValueError(f"{place}: there is no {self.mask} in {cut(text)}")
            self._check_length(text, place, row)
        answers: list[Any] = [None] * len(texts)
        for batch in batches(
            [(padded(len(row)), power(len(mask))) for row, mask in zip(rows, masks)],
            self.batch_size,
        ):
            for index, answer in zip(
                batch, self._score([rows[i] for i in batch], [masks[i] for i in batch])
            ):
                answers[index] = answer
        return [self._result(text, answer) for text, answer in zip(texts, answers)]

    def _check_length(self, text, place, row):
        if len(row) > self.length:
            raise ValueError(
                f"{place}: {len(row)} tokens with [CLS] and [SEP], the model reads at most {self.length}: {cut(text)}"
            )

    def _score(self, rows, masks):
        """For each row, for each of its masks, [(probability, id)]."""
        B, P = power(len(rows)), power(max(map(len, masks)))
        L = min(padded(max(map(len, rows))), self.length)
        tokens_BL, valid_BL = fill(rows, B, L, self.vocabulary.pad)
        positions_BP, _ = fill(masks, B, P, 0)
        probability_BPK, id_BPK = jax.device_get(
            _likeliest(
                self.model,
                self.params,
                tokens_BL,
                valid_BL,
                positions_BP,
                top=self.top,
                size=self.vocabulary.size,
            )
        )
        return [
            [
                list(zip(probability_BPK[b, p].tolist(), id_BPK[b, p].tolist()))
                for p in range(len(mask))
            ]
            for b, mask in enumerate(masks)
        ]

    def _result(self, text, answer):
        parts = text.split(self.mask)
        if (
            len(parts) != len(answer) + 1
        ):  # only a tokenizer that rewrites its own special tokens could do that
            raise ValueError(
                f"{len(answer)} masks were read in a text with {len(parts) - 1}: {cut(text)}"
            )
        filled = parts[0]
        for ranked, part in zip(answer, parts[1:]):
            best = ranked[0][1]
            filled = (
                (filled if self._begins(best) else filled.rstrip(" ")) + self._word(best) + part
            )
        masks = [[self._answer(probability, i) for probability, i in ranked] for ranked in answer]
        return {"filled": filled, "masks": masks}

    def _answer(self, probability, i):
        word = self._word(i) if self._begins(i) else f"…{self._word(i)}"
        return {
            "word": word,
            "probability": probability,
            "piece": self.vocabulary.pieces[i],
            "id": i,
        }

    def _begins(self, i):
        return bool(self.vocabulary.starts_word[i])

    def _word(self, i):
        """A piece as it reads, without the sign that it begins or continues a word."""
        return self.vocabulary.decode([i]).strip().removeprefix("##") or self.vocabulary.pieces[i]


@partial(jax.jit, static_argnames=("model", "top", "size"))
def _likeliest(model, params, tokens_BL, valid_BL, positions_BP, *, top, size):
    """(probabilities, ids) [B, P, K] of the likeliest of the first `size` ids; rows beyond belong to no piece."""
    logits_BPV, _ = model.apply({"params": params}, tokens_BL, valid_BL, None, positions_BP)
    return jax.lax.top_k(jax.nn.softmax(logits_BPV, axis=-1)[..., :size], top)


class Judgements(Masks):
    """What ELECTRA's generator puts in the masks of a text; of a text without any, how likely the discriminator finds each word replaced."""

    def __call__(self, texts, places):
        whole = [i for i, text in enumerate(texts) if self.mask not in text]
        gapped = sorted(set(range(len(texts))) - set(whole))
        places, results = named(places), {}
        for chosen, answer in ((gapped, super().__call__), (whole, self._judge)):
            results |= zip(
                chosen, answer([texts[i] for i in chosen], [places[i] for i in chosen]), strict=True
            )
        return [results[i] for i in range(len(texts))]

    def _judge(self, texts, places):
        encodings = self.tokenizer.encode_batch(list(texts))
        for text, place, encoding in zip(texts, places, encodings):
            if all(encoding.special_tokens_mask):
                raise ValueError(f"{place}: there is no word in {cut(text)}")
            self._check_length(text, place, encoding.ids)
        chances = [None] * len(texts)
        for batch in batches([padded(len(encoding)) for encoding in encodings], self.batch_size):
            rows = [encodings[i].ids for i in batch]
            tokens_BL, valid_BL = fill(
                rows,
                power(len(rows)),
                min(padded(max(map(len, rows))), self.length),
                self.vocabulary.pad,
            )
            for index, chance_L in zip(
                batch,
                jax.device_get(_replaced(self.model, self.params, tokens_BL, valid_BL)).tolist(),
            ):
                chances[index] = chance_L
        return [
            {"filled": text, "judged": self._words(text, *each)}
            for text, *each in zip(texts, encodings, chances)
        ]

    def _words(self, text, encoding, chance_L):
        """[{word, probability}] as they stand in the text; a word is as suspicious as its most suspicious piece."""
        words = []
        for i, (begin, end), special, chance in zip(
            encoding.ids, encoding.offsets, encoding.special_tokens_mask, chance_L
        ):
            if special:
                continue
            if self._begins(i) or not words:
                words.append((begin, end, chance))
            else:
                words[-1] = words[-1][0], end, max(words[-1][2], chance)
        return [
            {"word": text[begin:end].strip(), "probability": chance} for begin, end, chance in words
        ]


@partial(jax.jit, static_argnames=("model",))
def _replaced(model, params, tokens_BL, valid_BL):
    """The probability [B, L] of each token that it was replaced."""
    return jax.nn.sigmoid(
        model.apply({"params": params}, tokens_BL, valid_BL, method="discriminate")
    )
