"""Gaps in a text, closed by a trained model: one piece for each [MASK], a span for each <extra_id_i>, or what follows it.

Rows are gathered by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   P masks of a row   K answers   M input length   V vocabulary
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from models import build
from models.decoding import Greedy, extend, generate
from pretrain.convert import name_of, tokenizer

SHORTEST = 16  # rows and mask counts are padded to powers of two, rows at least to this


class Masks:
    """Calling it with texts gives the K likeliest pieces of every mask, with their probabilities in the vocabulary."""

    def __init__(self, trained, top, batch_size):
        self.model, self.params = build(trained.run.model), trained.params
        self.vocabulary, self.length = trained.vocabulary, trained.run.model.length
        self.top, self.batch_size = min(top, trained.vocabulary.size), batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.mask = trained.vocabulary.pieces[trained.vocabulary.mask]

    def __call__(self, texts, places):
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        masks = [[i for i, token in enumerate(row) if token == self.vocabulary.mask] for row in rows]
        for text, place, row, mask in zip(texts, _named(places), rows, masks):
            if not mask:
                raise ValueError(f"{place}: there is no {self.mask} in {_cut(text)}")
            self._check_length(text, place, row)
        answers = [None] * len(texts)
        for batch in _batches(
            [(_padded(len(row)), _power(len(mask))) for row, mask in zip(rows, masks)], self.batch_size
        ):
            for index, answer in zip(batch, self._score([rows[i] for i in batch], [masks[i] for i in batch])):
                answers[index] = answer
        return [self._result(text, answer) for text, answer in zip(texts, answers)]

    def _check_length(self, text, place, row):
        if len(row) > self.length:
            raise ValueError(
                f"{place}: {len(row)} tokens with [CLS] and [SEP], the model reads at most {self.length}: {_cut(text)}"
            )

    def _score(self, rows, masks):
        """For each row, for each of its masks, [(probability, id)]."""
        B, P = _power(len(rows)), _power(max(map(len, masks)))
        L = min(_padded(max(map(len, rows))), self.length)
        tokens_BL, valid_BL = _fill(rows, B, L, self.vocabulary.pad)
        positions_BP, _ = _fill(masks, B, P, 0)
        probability_BPK, id_BPK = jax.device_get(
            _likeliest(
                self.model, self.params, tokens_BL, valid_BL, positions_BP, top=self.top, size=self.vocabulary.size
            )
        )
        return [
            [list(zip(probability_BPK[b, p].tolist(), id_BPK[b, p].tolist())) for p in range(len(mask))]
            for b, mask in enumerate(masks)
        ]

    def _result(self, text, answer):
        parts = text.split(self.mask)
        if len(parts) != len(answer) + 1:  # only a tokenizer that rewrites its own special tokens could do that
            raise ValueError(f"{len(answer)} masks were read in a text with {len(parts) - 1}: {_cut(text)}")
        filled = parts[0]
        for ranked, part in zip(answer, parts[1:]):
            best = ranked[0][1]
            filled = (filled if self._begins(best) else filled.rstrip(" ")) + self._word(best) + part
        masks = [[self._answer(probability, i) for probability, i in ranked] for ranked in answer]
        return {"filled": filled, "masks": masks}

    def _answer(self, probability, i):
        word = self._word(i) if self._begins(i) else f"…{self._word(i)}"
        return {"word": word, "probability": probability, "piece": self.vocabulary.pieces[i], "id": i}

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
        places, results = _named(places), {}
        for chosen, answer in ((gapped, super().__call__), (whole, self._judge)):
            results |= zip(chosen, answer([texts[i] for i in chosen], [places[i] for i in chosen]), strict=True)
        return [results[i] for i in range(len(texts))]

    def _judge(self, texts, places):
        encodings = self.tokenizer.encode_batch(list(texts))
        for text, place, encoding in zip(texts, places, encodings):
            if all(encoding.special_tokens_mask):
                raise ValueError(f"{place}: there is no word in {_cut(text)}")
            self._check_length(text, place, encoding.ids)
        chances = [None] * len(texts)
        for batch in _batches([_padded(len(encoding)) for encoding in encodings], self.batch_size):
            rows = [encodings[i].ids for i in batch]
            tokens_BL, valid_BL = _fill(rows, _power(len(rows)), min(_padded(max(map(len, rows))), self.length), self.vocabulary.pad)
            for index, chance_L in zip(batch, jax.device_get(_replaced(self.model, self.params, tokens_BL, valid_BL)).tolist()):
                chances[index] = chance_L
        return [{"filled": text, "judged": self._words(text, *each)} for text, *each in zip(texts, encodings, chances)]

    def _words(self, text, encoding, chance_L):
        """[{word, probability}] as they stand in the text; a word is as suspicious as its most suspicious piece."""
        words = []
        for i, (begin, end), special, chance in zip(encoding.ids, encoding.offsets, encoding.special_tokens_mask, chance_L):
            if special:
                continue
            if self._begins(i) or not words:
                words.append((begin, end, chance))
            else:
                words[-1] = words[-1][0], end, max(words[-1][2], chance)
        return [{"word": text[begin:end].strip(), "probability": chance} for begin, end, chance in words]


@partial(jax.jit, static_argnames=("model",))
def _replaced(model, params, tokens_BL, valid_BL):
    """The probability [B, L] of each token that it was replaced."""
    return jax.nn.sigmoid(model.apply({"params": params}, tokens_BL, valid_BL, method="judge"))


class Spans:
    """Calling it with texts gives what the model writes for every sentinel, the likeliest token at each step."""

    strategy = Greedy()

    def __init__(self, trained, length, batch_size):
        self.model, self.params, self.vocabulary = build(trained.run.model), trained.params, trained.vocabulary
        self.length, self.batch_size = length, batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, "t5")
        self.names = {i: trained.vocabulary.pieces[i] for i in trained.vocabulary.sentinels}

    def __call__(self, texts, places):
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        for text, place, row in zip(texts, _named(places), rows):
            if not any(i in self.names for i in row):
                raise ValueError(f"{place}: there is no <extra_id_0> in {_cut(text)}")
        spans = [None] * len(texts)
        for batch in _batches([_padded(len(row)) for row in rows], self.batch_size):
            for index, written in zip(batch, self._write([rows[i] for i in batch])):
                spans[index] = self._spans(rows[index], written)
        return [{"filled": _close(text, span), "spans": span} for text, span in zip(texts, spans)]

    def _write(self, rows):
        B, M = _power(len(rows)), _padded(max(map(len, rows)))
        inputs_BM, valid_BM = _fill(rows, B, M, self.vocabulary.pad)
        ends = {"start": 0, "end": self.vocabulary.eos, "pad": self.vocabulary.pad}
        written_BT = generate(self.model, self.params, inputs_BM, valid_BM, length=self.length, strategy=self.strategy, **ends)
        return jax.device_get(written_BT)[: len(rows)].tolist()

    def _spans(self, row, written):
        """{sentinel of the input: the text written behind it, None if it was not written}."""
        found, current = {}, None
        for i in written:
            if i == self.vocabulary.eos:
                break
            if i in self.names:
                current = found.setdefault(i, [])
            elif current is not None:
                current.append(i)
        asked = dict.fromkeys(i for i in row if i in self.names)
        return {self.names[i]: self._text(found[i]) if i in found else None for i in asked}

    def _text(self, ids):
        """The ids as text; an id beyond the vocabulary, which a little-trained model may write, is shown as unknown."""
        known = [i if i < self.vocabulary.size else self.vocabulary.unk for i in ids]
        return self.vocabulary.decode(known).strip()


class Translations(Spans):
    """Calling it with texts gives what the model writes for each: the likeliest token at each step, or by another `strategy`."""

    def __init__(self, trained, length, batch_size, strategy=Greedy()):
        super().__init__(trained, length, batch_size)
        self.strategy = strategy
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))

    def __call__(self, texts, places):
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        for text, place, row in zip(texts, _named(places), rows):
            if len(row) < 2:
                raise ValueError(f"{place}: there is nothing to translate in {_cut(text)}")
        written = [None] * len(texts)
        for batch in _batches([_padded(len(row)) for row in rows], self.batch_size):
            for index, ids in zip(batch, self._write([rows[i] for i in batch])):
                written[index] = self._text(ids[: ids.index(self.vocabulary.eos)] if self.vocabulary.eos in ids else ids)
        return [{"written": text} for text in written]


class Continuations:
    """Calling it with texts gives what the model writes behind each, the likeliest token at each step, up to the end of the text."""

    def __init__(self, trained, length, batch_size):
        self.model, self.params, self.vocabulary = build(trained.run.model), trained.params, trained.vocabulary
        self.longest, self.length, self.batch_size = trained.run.model.length, length, batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))

    def __call__(self, texts, places):
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        for text, place, row in zip(texts, _named(places), rows):
            if not row:
                raise ValueError(f"{place}: there is nothing to continue in {_cut(text)}")
            if len(row) + self.length > self.longest:
                raise ValueError(
                    f"{place}: {len(row)} tokens and {self.length} more (--length), the model reads at most {self.longest}: {_cut(text)}"
                )
        written = [None] * len(texts)
        for batch in _batches([_padded(len(row)) for row in rows], self.batch_size):
            for index, ids in zip(batch, self._write([rows[i] for i in batch])):
                written[index] = self._text(rows[index], ids)
        return [{"filled": text + more, "written": more} for text, more in zip(texts, written)]

    def _write(self, rows):
        B, M = _power(len(rows)), min(_padded(max(map(len, rows))), self.longest - self.length)
        tokens_BM, valid_BM = _fill(rows, B, M, 0)
        how = {"length": self.length, "size": self.vocabulary.size, "end": self.vocabulary.eos}
        written_BT = extend(self.model, self.params, tokens_BM, valid_BM.sum(axis=1), **how)
        return jax.device_get(written_BT)[: len(rows)].tolist()

    def _text(self, row, ids):
        """What the ids add to the text of the row: how a piece reads depends on what stands before it."""
        ids = ids[: ids.index(self.vocabulary.eos)] if self.vocabulary.eos in ids else ids
        return self.vocabulary.decode(row + ids)[len(self.vocabulary.decode(row)) :]


def _close(text, spans):
    for sentinel, span in spans.items():
        text = text if span is None else text.replace(sentinel, span)
    return text


# ---- rows and shapes ---------------------------------------------------------


def _named(places):
    return [place or f"text {number}" for number, place in enumerate(places, 1)]


def _cut(text, length=80):
    return repr(text if len(text) <= length else text[:length] + "…")


def _power(number):
    """The least power of two that is not less."""
    return 1 << (number - 1).bit_length()


def _padded(length):
    return max(SHORTEST, _power(length))


def _batches(keys, size):
    """Indices in groups of at most `size` whose keys are equal."""
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    batch = []
    for i in order:
        if batch and (len(batch) == size or keys[i] != keys[batch[0]]):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _fill(rows, B, L, pad):
    """(ids int32 [B, L], bool [B, L]): rows padded on the right. A row that only fills the batch has one valid id."""
    ids_BL, valid_BL = np.full((B, L), pad, np.int32), np.zeros((B, L), bool)
    for b, row in enumerate(rows):
        ids_BL[b, : len(row)] = row
        valid_BL[b, : len(row)] = True
    valid_BL[len(rows) :, 0] = True
    return jnp.asarray(ids_BL), jnp.asarray(valid_BL)
