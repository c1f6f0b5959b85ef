"""SentencePiece (Kudo and Richardson 2018): training, and the released `.model` files, read by the library itself.

Five layouts. `bert`: [PAD]=0 [UNK]=1 [CLS]=2 [SEP]=3 [MASK]=4. `t5`: <pad>=0 </s>=1 <unk>=2, and 100 sentinels appended
behind the V pieces of the model, <extra_id_0> last: <extra_id_i> = V + 99 - i, as in the released T5 checkpoints. `ul2`: the same, with the mode tokens [NLU]=3 [NLG]=4 [S2S]=5.
`gpt`: <unk>=0 <|endoftext|>=1. `transformer`: <pad>=0 <unk>=1 </s>=2.

Normalisation is SentencePiece's own: `nmt_nfkc` (NFKC, cleaned white space), or `nmt_nfkc_cf`, which folds case too.
"""

import io
import itertools
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import sentencepiece

from data.vocabulary.base import SENTINELS, Vocabulary, is_unused
from data.vocabulary.layouts import DEFAULT, WITH_SENTINELS
from data.vocabulary.layouts import SENTENCEPIECE as LAYOUTS
from data.vocabulary.sentencepiece_proto import ModelProto

SPACE = "▁"  # SentencePiece's mark of a word's beginning
BREAK = "\ufdd0"  # a Unicode noncharacter: it cannot occur in text, so it may separate sentences (encode_spans)
GROUP = (
    1 << 12
)  # bytes that the library encodes at once: BPE takes more than linear time, unigram loses precision
SMALLEST = 16  # ids without sentinels
SEED_PIECES = 300_000  # candidates that unigram training starts from; enough for a million sentences, and quick

NORMALISATION = {False: "nmt_nfkc", True: "nmt_nfkc_cf"}  # by `lowercase`


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model and, for T5, the sentinels behind its pieces."""

    def __init__(self, model: bytes, appended: int = 0):
        """`model`: the bytes of a `.model` file. `appended`: sentinels to append behind its pieces, 0 or 100."""
        self._processor = _processor(model)
        self._model, self._appended = model, appended
        self._breaker: sentencepiece.SentencePieceProcessor | Literal[False] | None = None
        self._space = self._processor.piece_to_id(SPACE)
        processor, count = self._processor, self._processor.get_piece_size()
        ids = list(range(count))
        pieces = processor.id_to_piece(ids) + [f"<extra_id_{i}>" for i in reversed(range(appended))]
        kinds = processor.is_control(ids), processor.is_unused(ids), processor.is_unknown(ids)
        hidden: np.ndarray = np.any(np.array(kinds), axis=0)
        super().__init__(
            kind="sentencepiece",
            pieces=pieces,
            scores=processor.get_score(ids),
            special=[h or is_unused(p) for h, p in zip(hidden.tolist(), pieces)]
            + [True] * appended,
            starts_word=[p.startswith(SPACE) for p in pieces],
            options={"appended": appended},
            normalize=processor.normalize,
        )

    @property
    def model(self) -> bytes:
        """The bytes of the `.model` file, without appended sentinels."""
        return self._model

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(texts))

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return [
            (one["ids"], one["offsets"])
            for one in self._processor.encode(list(texts), return_type="offset_mapping")
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special ids appear by their names."""
        runs = itertools.groupby(
            map(int, ids), key=lambda i: bool(self.special[i]) and i != self.unk
        )
        parts = [
            [self.pieces[i] for i in run] if hidden else [self._processor.decode(list(run))]
            for hidden, run in runs
        ]
        return " ".join(text for part in parts for text in part)

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids (int32) of the sentences text[starts[i]:ends[i]], one after another, and the number of ids of each.

        The library encodes long texts faster than single sentences, and fewer results cross into Python. So the
        sentences of a document are joined by a piece that only this method's copy of the model knows, and told apart
        again where it appears. The library adds scores up in single precision: with a released model, of two
        segmentations that score the same to six digits it may choose the other one when the text goes on (once in a
        million tokens). With a model that was trained here sums are exact, and nothing changes.
        """
        if self._breaker is None:
            self._breaker = _with_breaks(self._model, self._processor)
        if self._breaker is False or BREAK.encode() in text:
            return super().encode_spans(text, starts, ends, first)
        encoded = self._breaker.encode(_groups(text, starts, ends, first), return_type="numpy")
        mark = np.array([len(self.pieces) - self._appended], np.int32)
        ids = np.concatenate([part for group in encoded for part in (group, mark)])
        stops = np.flatnonzero(ids == mark)
        trailing = (
            stops[ids[stops - 1] == self._space] - 1
        )  # a blank at a sentence's end, which is none where it is alone
        kept = np.delete(ids, np.concatenate([stops, trailing]))
        lengths = np.diff(stops, prepend=-1) - 1
        lengths[np.searchsorted(stops, trailing)] -= 1
        return kept, lengths

    def files(self) -> dict[str, bytes]:
        return {"spiece.model": self._model}


def read_sentencepiece(model: bytes) -> SentencePieceVocabulary:
    """A `.model` file; T5's layout (pad 0, </s> 1, <unk> 2, no bos) without sentinels of its own gets them appended."""
    processor = _processor(model)
    needs_sentinels = (
        processor.pad_id(),
        processor.eos_id(),
        processor.unk_id(),
        processor.bos_id(),
    ) == (
        0,
        1,
        2,
        -1,
    )
    sentinels = processor.piece_to_id("<extra_id_0>") != processor.unk_id()
    return SentencePieceVocabulary(
        model, appended=SENTINELS if needs_sentinels and not sentinels else 0
    )


def train_sentencepiece(
    texts: Iterable[str],
    size: int,
    layout: str = DEFAULT,
    algorithm: str = "unigram",
    lowercase: bool = False,
) -> SentencePieceVocabulary:
    """Train a vocabulary of `size` ids, specials and sentinels included, on `texts` (sentences or paragraphs).

    The same texts in the same order give the same vocabulary on any machine: one thread, no sampling in the library.
    Raises ValueError if the texts are too few for the size; the message gives the largest size that they allow.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}: one of {', '.join(LAYOUTS)}")
    if algorithm not in ("unigram", "bpe"):
        raise ValueError(f"algorithm {algorithm!r}: unigram or bpe, or byte_bpe")
    appended = SENTINELS if layout in WITH_SENTINELS else 0
    if size < SMALLEST + appended:
        raise ValueError(
            f"a {layout} vocabulary needs at least {SMALLEST + appended} ids, not {size}"
        )
    longest = 4192  # the library leaves out longer lines without a word; they are cut instead
    lines = (line for text in texts for line in _cut(text, longest))
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=out, vocab_size=size - appended, model_type=algorithm,
            normalization_rule_name=NORMALISATION[lowercase], character_coverage=0.9995, num_threads=1,
            max_sentence_length=longest, seed_sentencepiece_size=SEED_PIECES, minloglevel=2, **LAYOUTS[layout],
        )  # fmt: skip
    except RuntimeError as error:
        raise ValueError(_training_error(str(error), size, appended)) from error
    return SentencePieceVocabulary(_rounded(out.getvalue()), appended)


def _rounded(model: bytes) -> bytes:
    """The model with its scores rounded to multiples of 2^-8, whose float32 sums are exact in any order.

    Two libraries that add up the same pieces in another order then find the same ties, and break them alike: the
    exported tokenizer gives the ids of this one, and sentences that are encoded together those of single ones.
    """
    parsed = ModelProto.FromString(model)
    for piece in parsed.pieces:
        piece.score = round(piece.score * 256) / 256
    return parsed.SerializeToString(deterministic=True)


def _training_error(message: str, size: int, appended: int) -> str:
    """SentencePiece's reason in the words of our options."""
    if found := re.search(r"value <= (\d+)", message):
        most = int(found[1]) + appended
        if most < SMALLEST + appended:
            return "the text is too small to train a vocabulary on"
        return f"the text is too small for a vocabulary of {size} ids; it allows at most {most}: --vocab-size {most}"
    if found := re.search(r"smaller than required_chars.*?(\d+) vs (\d+)", message):
        least = int(found[2]) + appended
        return f"a vocabulary of {size} ids cannot hold the characters of the text; it takes at least {least}"
    if "sentences_.empty" in message or "all_chars_count" in message:
        return "there is no text to train a vocabulary on"
    return f"SentencePiece could not train a vocabulary of {size} ids: {message}"


def _cut(text: str, longest: int) -> list[str]:
    """`text` in parts of at most `longest` UTF-8 bytes, cut at white space where there is some."""
    if len(text) * 4 <= longest or len(text.encode()) <= longest:
        return [text]
    middle = len(text) // 2
    space = text.rfind(" ", 1, middle)
    at = space if space > 0 else middle
    return _cut(text[:at], longest) + _cut(text[at:], longest)


def _processor(model: bytes):
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model, num_threads=1)
    except RuntimeError as error:
        raise ValueError(f"not a SentencePiece model ({error})") from error


def _with_breaks(model: bytes, plain) -> sentencepiece.SentencePieceProcessor | Literal[False]:
    """A processor like `plain`, of `model`, that knows BREAK as one piece too; False where joining would change ids."""
    piece = BREAK.encode()
    entry = (
        b"\x0a" + bytes([len(piece)]) + piece + b"\x15" + struct.pack("<f", 0.0)
    )  # the piece and its score
    # Protocol buffers append to a repeated field (ModelProto.pieces, number 1) by concatenation.
    extended = model + b"\x0a" + bytes([len(entry)]) + entry
    breaker = _processor(extended)
    mark, probes = plain.get_piece_size(), ["One two.", "“Three?” 4", "fünf.", "数学 。"]
    expected = [i for probe in probes for i in plain.encode(probe) + [mark]][:-1]
    return breaker if breaker.encode(f"{BREAK} ".join(probes)) == expected else False


def _groups(text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray) -> list[bytes]:
    """The sentences of each document joined by BREAK and a blank, in groups of about GROUP bytes."""
    joint = f"{BREAK} ".encode()
    sentences = [text[a:b] for a, b in zip(starts.tolist(), ends.tolist())]
    begins = np.repeat(
        starts[first], np.diff(first, append=len(starts))
    )  # of each sentence's document
    begins_group = np.diff((starts - begins) // GROUP, prepend=-1) != 0
    begins_group[first] = True
    cuts = np.append(np.flatnonzero(begins_group), len(sentences)).tolist()
    return [joint.join(sentences[a:b]) for a, b in itertools.pairwise(cuts)]
