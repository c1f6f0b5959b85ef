"""SentencePiece (Kudo and Richardson 2018): vocabularies of trained and released `.model` files.

There are five layouts of special tokens:
  bert: [PAD]=0 [UNK]=1 [CLS]=2 [SEP]=3 [MASK]=4
  t5: <pad>=0 </s>=1 <unk>=2, and 100 sentinels after the V pieces of the model, <extra_id_0> last:
    <extra_id_i> = V + 99 - i, as in the released T5 checkpoints
  ul2: as t5, with the mode tokens [NLU]=3 [NLG]=4 [S2S]=5
  gpt: <unk>=0 <|endoftext|>=1
  transformer: <pad>=0 <unk>=1 </s>=2

Text is normalized by SentencePiece's `nmt_nfkc` (NFKC and clean white space), or by `nmt_nfkc_cf`,
which also folds case.
"""

import itertools
import struct
from collections.abc import Sequence
from typing import Literal

import numpy as np
import sentencepiece

from data.vocabulary.base import NUM_SENTINELS, Vocabulary, is_unused
from data.vocabulary.tokenizer_checks import naming_texts

WORD_START_MARK = "▁"  # SentencePiece's mark for the beginning of a word
# A Unicode noncharacter, which no text may have, so it can separate sentences.
SENTENCE_BREAK = "\ufdd0"
# Bytes of text in one call of the library. With longer texts BPE takes more than linear time, and
# the float32 score sums of unigram lose precision.
GROUP_BYTES = 1 << 12


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model and, for T5, the sentinels after its pieces."""

    def __init__(self, model: bytes, appended: int = 0) -> None:
        """Initialize the vocabulary.

        Args:
          appended: number of sentinels to append to its pieces, 0 or 100.
        """
        self._processor = _load_processor(model)
        self._model, self._appended = model, appended
        self._breaker: sentencepiece.SentencePieceProcessor | Literal[False] | None = None
        self._space = self._processor.piece_to_id(WORD_START_MARK)
        processor, count = self._processor, self._processor.get_piece_size()
        ids = list(range(count))
        pieces = processor.id_to_piece(ids) + [f"<extra_id_{i}>" for i in reversed(range(appended))]
        kinds = processor.is_control(ids), processor.is_unused(ids), processor.is_unknown(ids)
        special: np.ndarray = np.any(np.array(kinds), axis=0)
        super().__init__(
            kind="sentencepiece",
            pieces=pieces,
            scores=processor.get_score(ids),
            special=[
                is_special or is_unused(piece)
                for is_special, piece in zip(special.tolist(), pieces)
            ]
            + [True] * appended,
            starts_word=[piece.startswith(WORD_START_MARK) for piece in pieces],
            options={"appended": appended},
            normalize=processor.normalize,
        )

    @property
    def model_bytes(self) -> bytes:
        """Bytes of the `.model` file, without appended sentinels."""
        return self._model

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with naming_texts(texts, "SentencePiece"):
            return self._processor.encode(list(texts))

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        with naming_texts(texts, "SentencePiece"):
            found = self._processor.encode(list(texts), return_type="offset_mapping")
        return [(encoding["ids"], encoding["offsets"]) for encoding in found]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; special ids appear as their pieces."""
        runs = itertools.groupby(
            map(int, ids), key=lambda i: bool(self.special[i]) and i != self.unk
        )
        parts = [
            [self.pieces[i] for i in run] if is_special else [self._processor.decode(list(run))]
            for is_special, run in runs
        ]
        return " ".join(text for part in parts for text in part)

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode the sentences text[starts[i]:ends[i]]; see the base class.

        The library encodes one long text faster than many sentences, and fewer results are
        converted to Python objects. So the sentences of a document are joined by a separator piece,
        which only a copy of the model has, and the ids are split at the id of this piece.

        The library sums scores in float32. With a released model, two segmentations may have scores
        that agree to six digits, and the choice between them may depend on the text that follows
        (once in a million tokens). Models trained here have exact sums and are not affected.
        """
        if self._breaker is None:
            self._breaker = _add_sentence_break(self._model, self._processor)
        if self._breaker is False or SENTENCE_BREAK.encode() in text:
            return super().encode_spans(text, starts, ends, first)
        encoded = self._breaker.encode(
            _join_sentences(text, starts, ends, first), return_type="numpy"
        )
        mark = np.array([len(self.pieces) - self._appended], np.int32)
        ids = np.concatenate([array for group in encoded for array in (group, mark)])
        stops = np.flatnonzero(ids == mark)
        # A space before the break becomes a piece, which a sentence on its own does not have.
        trailing = stops[ids[stops - 1] == self._space] - 1
        sentence_ids = np.delete(ids, np.concatenate([stops, trailing]))
        lengths = np.diff(stops, prepend=-1) - 1
        lengths[np.searchsorted(stops, trailing)] -= 1
        return sentence_ids, lengths

    def export_files(self) -> dict[str, bytes]:
        return {"spiece.model": self._model}


def read_sentencepiece(model: bytes, sentinels: int | None = None) -> SentencePieceVocabulary:
    """Read a released model from the bytes of its `.model` file.

    A model with T5's layout (<pad>=0 </s>=1 <unk>=2, no bos) and no sentinels gets as many as
    `sentinels` says, or 100. Raises ValueError if it is not a SentencePiece model.
    """
    processor = _load_processor(model)
    special_ids = processor.pad_id(), processor.eos_id(), processor.unk_id(), processor.bos_id()
    has_sentinels = processor.piece_to_id("<extra_id_0>") != processor.unk_id()
    needs_sentinels = special_ids == (0, 1, 2, -1) and not has_sentinels
    appended = NUM_SENTINELS if sentinels is None else sentinels
    return SentencePieceVocabulary(model, appended=appended if needs_sentinels else 0)


def _load_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Load a model; raises ValueError if the bytes are not one."""
    if not model:  # which the library takes for "no model yet"
        raise ValueError("not a SentencePiece model (no bytes)")
    sentencepiece.set_min_log_level(2)  # its errors are raised as well
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model, num_threads=1)
    except RuntimeError as error:
        raise ValueError(f"not a SentencePiece model ({error})") from error


def _add_sentence_break(
    model: bytes, plain: sentencepiece.SentencePieceProcessor
) -> sentencepiece.SentencePieceProcessor | Literal[False]:
    """Return a processor whose model has one more piece, the sentence break.

    Args:
      plain: processor of the same model without the break.

    Returns:
      The processor, or False if joining sentences would change ids.
    """
    piece = SENTENCE_BREAK.encode()
    # The fields of a SentencePiece message: the piece and its score.
    entry = b"\x0a" + bytes([len(piece)]) + piece + b"\x15" + struct.pack("<f", 0.0)
    # Concatenation appends to a repeated field of a protocol buffer (ModelProto.pieces, number 1).
    extended = model + b"\x0a" + bytes([len(entry)]) + entry
    breaker = _load_processor(extended)
    mark, probes = plain.get_piece_size(), ["One two.", "“Three?” 4", "fünf.", "数学 。"]
    expected = [i for probe in probes for i in plain.encode(probe) + [mark]][:-1]
    return breaker if breaker.encode(f"{SENTENCE_BREAK} ".join(probes)) == expected else False


def _join_sentences(
    text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
) -> list[bytes]:
    """Join the sentences of each document by the sentence break, in groups of about 4 KiB.

    Args and shapes are as in `encode_spans`.
    """
    separator = f"{SENTENCE_BREAK} ".encode()
    sentences = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
    document_starts = np.repeat(starts[first], np.diff(first, append=len(starts)))
    begins_group = np.diff((starts - document_starts) // GROUP_BYTES, prepend=-1) != 0
    begins_group[first] = True
    cuts = np.append(np.flatnonzero(begins_group), len(sentences)).tolist()
    return [separator.join(sentences[start:end]) for start, end in itertools.pairwise(cuts)]
