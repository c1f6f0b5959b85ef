"""Read released vocabularies with the `tokenizers` library: WordPiece and BPE.

WordPiece as in BERT (Devlin et al. 2018), byte-level BPE as in GPT-2 (Radford et al. 2019)
and RoBERTa (Liu et al. 2019), BPE within words as in GPT (Radford et al. 2018). The encoders have
no special tokens, so "[MASK]" in a text is plain text.
"""

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.corpus.untrusted import MAX_VOCABULARY_VALUES, parse_bounded_json
from data.vocabulary.base import PROBE_TEXT, Vocabulary, is_unused
from data.vocabulary.tokenizer_checks import (
    check_id,
    check_ids,
    iterate_steps,
    naming_library_errors,
    naming_texts,
)

END_OF_WORD, UNKNOWN = "</w>", "[UNK]"
BRACKETED = re.compile(r"\[.*\]|<.*>")  # names of special tokens, whose capitals say nothing
# A Unicode noncharacter, which no text may have, so the names of hidden tokens begin with it.
HIDDEN_MARK = "\ufdd1"
WORD_START_RULES = {
    "wordpiece": lambda piece: not piece.startswith("##"),
    # Byte-level BPE writes space, line feed, tab and carriage return so.
    "byte": lambda piece: piece[:1] in ("Ġ", "Ċ", "ĉ", "č"),
    "space": lambda piece: piece.startswith("▁"),
    "whole": lambda piece: True,
}


class ReleasedVocabulary(Vocabulary):
    """A vocabulary whose encoder is a `tokenizers.Tokenizer`."""

    def __init__(
        self,
        kind: str,
        encoder: tokenizers.Tokenizer,
        decoder: tokenizers.Tokenizer,
        style: str,
        *,
        files: Mapping[str, bytes],
        special_pieces: Collection[str] = (),
        roles: dict[str, str] | None = None,
        options: dict[str, Any] | None = None,
        encoder_parts: Any = None,
    ) -> None:
        """Initialize the vocabulary.

        Args:
          encoder: tokenizer that encodes special tokens in a text as plain text; another one than
            the decoder if their names in it begin with HIDDEN_MARK.
          files: {file name: contents} of the released form.
          roles: {role: special token}, where the vocabulary's own files name it.
          options: keyword arguments with which the vocabulary is read again.
          encoder_parts: what the fingerprint lacks of the encoder, a JSON value; None: nothing.
        """
        self._encoder, self._decoder, self._files = encoder, decoder, files
        self._hides_tokens = encoder is not decoder
        ids = decoder.get_vocab(with_added_tokens=True)
        for piece, i in ids.items():
            check_id(piece, i)
        with naming_library_errors("the vocabulary"):  # what the library notices only in use
            encoder.encode_batch_fast([PROBE_TEXT], add_special_tokens=False)
            decoder.decode(sorted(ids.values())[:1], skip_special_tokens=False)
        pieces = [""] * (max(ids.values(), default=0) + 1)
        for piece, i in ids.items():
            pieces[i] = piece
        self.keeps_spaces = style == "byte"
        # Without a decoder the library would show the marks of blanks in a text.
        self._joiner = decoders.Metaspace() if style == "space" and not decoder.decoder else None
        with naming_library_errors("the vocabulary"):  # such as two pieces with one id
            self._continuing = _make_continuing(encoder) if self.keeps_spaces else None
        normalize = encoder.normalizer.normalize_str if encoder.normalizer else lambda text: text
        if (options or {}).get("prefix_space"):
            normalize = " {}".format
        super().__init__(
            kind=kind,
            pieces=pieces,
            special=[not p or p in special_pieces or is_unused(p) for p in pieces],
            starts_word=list(map(WORD_START_RULES[style], pieces)),
            options=options or {},
            normalize=normalize,
            roles=roles,
            encoder_parts=encoder_parts,
        )

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._encode_plain(self._encoder, texts)]

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode the sentences text[starts[i]:ends[i]]; see the base class.

        Only the first sentence of a document gets the space that may begin a text.
        """
        if self._continuing is None:
            return super().encode_spans(text, starts, ends, first)
        sentences = [text[i:j].decode() for i, j in zip(starts.tolist(), ends.tolist())]
        ids = [encoding.ids for encoding in self._encode_plain(self._continuing, sentences)]
        begins = first.tolist()
        for i, begin in zip(begins, self.encode_batch([sentences[i] for i in begins])):
            ids[i] = begin
        lengths = np.array([len(sentence) for sentence in ids], np.int64)
        return np.fromiter(itertools.chain.from_iterable(ids), np.int32, lengths.sum()), lengths

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        with naming_texts(texts):
            found = self._encoder.encode_batch(self._mask_marks(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in found]

    def _encode_plain(
        self, encoder: tokenizers.Tokenizer, texts: Sequence[str]
    ) -> list[tokenizers.Encoding]:
        """Return the encodings of texts, without offsets."""
        with naming_texts(texts):
            return encoder.encode_batch_fast(self._mask_marks(texts), add_special_tokens=False)

    def _mask_marks(self, texts: Sequence[str]) -> list[str]:
        """Return texts that hold no name of a hidden token: U+FFFD replaces the mark."""
        if not self._hides_tokens:
            return list(texts)
        return [text.replace(HIDDEN_MARK, "\ufffd") for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        if self._joiner:
            return self._joiner.decode([self.pieces[int(i)] for i in ids])
        return self._decoder.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the tokenizer with its special tokens as the text of a tokenizer.json."""
        return self._decoder.to_str()

    def export_files(self) -> dict[str, bytes]:
        return dict(self._files)


def read_wordpiece(
    vocab: str,
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
    unknown: str = UNKNOWN,
) -> ReleasedVocabulary:
    """Read a WordPiece vocabulary.

    Args:
      lowercase: whether case is folded; None: if no piece but those in brackets, such as [CLS] and
        <S>, has a capital.
      strip_accents: whether accents are removed; None: if case is folded, as in BERT.

    Raises:
      ValueError: if a piece appears twice or the one of unknown words is missing.
    """
    pieces = vocab.split("\n")
    pieces = pieces[:-1] if pieces and pieces[-1] == "" else pieces
    ids = {piece.rstrip("\r"): i for i, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise ValueError(f"vocab.txt: {len(pieces) - len(ids)} pieces appear twice")
    if not isinstance(unknown, str) or unknown not in ids:
        raise ValueError(
            f"vocab.txt: no piece {unknown!r:.60}, so this is not a WordPiece vocabulary; if the "
            "piece of unknown words has another name, give it as unk_token in "
            "tokenizer_config.json"
        )
    case_rule = ""
    if lowercase is None:
        lowercase, case_rule = choose_case(ids)
    if not all(isinstance(option, bool | None) for option in (lowercase, strip_accents, chinese)):
        raise ValueError(f"vocab.txt: options {(lowercase, strip_accents, chinese)!r:.80}")
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    vocabulary = ReleasedVocabulary(
        "wordpiece",
        tokenizer,
        tokenizer,
        "wordpiece",
        files={"vocab.txt": vocab.encode()},
        roles={} if unknown == UNKNOWN else {"unk": unknown},
        options={"lowercase": lowercase, "strip_accents": strip_accents, "chinese": chinese}
        | ({} if unknown == UNKNOWN else {"unknown": unknown}),
    )
    vocabulary.reading_note = case_rule
    return vocabulary


def choose_case(pieces: Collection[str]) -> tuple[bool, str]:
    """Return whether case is folded where no file says so, and a line that says why."""
    words = (piece for piece in pieces if not BRACKETED.fullmatch(piece))
    if capital := next((piece for piece in words if piece != piece.lower()), None):
        return False, (
            f"vocab.txt: case is kept, because it has pieces with capitals such as {capital!r}; to "
            "fold it, as AutoTokenizer does without a file that says otherwise, put "
            '{"do_lower_case": true} in a tokenizer_config.json next to it'
        )
    return True, (
        "vocab.txt: case is folded and accents are removed, because no piece has a capital; to "
        'keep them, put {"do_lower_case": false} in a tokenizer_config.json next to it'
    )


def read_byte_bpe(vocab: str, merges: str, *, prefix_space: bool = False) -> ReleasedVocabulary:
    """Read byte-level BPE from the texts of a vocab.json or encoder.json and its merges.

    With `prefix_space`, a text that begins without a space is read as if it began with one.
    """
    if not isinstance(prefix_space, bool):
        raise ValueError(f"vocab.json: prefix_space is {prefix_space!r:.80}, not true or false")
    ids, pairs = _parse_ids(vocab), _parse_merges(merges)
    with naming_library_errors("vocab.json"):
        tokenizer = tokenizers.Tokenizer(models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    files = {"vocab.json": vocab.encode(), "merges.txt": merges.encode()}
    options = {"prefix_space": True} if prefix_space else {}
    return ReleasedVocabulary(
        "byte_bpe", tokenizer, tokenizer, "byte", files=files, options=options, encoder_parts=pairs
    )


def is_word_bpe(vocab: str) -> bool:
    """Return whether the text of a vocab.json has GPT's pieces, which mark the end of a word."""
    return any(piece.endswith(END_OF_WORD) for piece in _parse_ids(vocab))


def read_word_bpe(vocab: str, merges: str) -> ReleasedVocabulary:
    """Read GPT's BPE within words from the texts of vocab.json and merges.txt, as `transformers`.

    Text is cleaned, lower-cased and split into words as for BERT. The paper's own code used ftfy
    and spaCy, so its ids may differ. A piece marks the end of a word and not its beginning, so each
    piece counts as a word.
    """
    ids, pairs = _parse_ids(vocab), _parse_merges(merges)
    if "<unk>" not in ids:
        raise ValueError(
            "vocab.json: no piece <unk>, which such a vocabulary needs for unknown characters"
        )
    with naming_library_errors("vocab.json"):
        bpe = models.BPE(ids, pairs, unk_token="<unk>", end_of_word_suffix=END_OF_WORD)
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
    files = {"vocab.json": vocab.encode(), "merges.txt": merges.encode()}
    return ReleasedVocabulary(
        "word_bpe", tokenizer, tokenizer, "whole", files=files, encoder_parts=pairs
    )


def _parse_ids(vocab: str) -> dict[str, int]:
    """Parse the text of a vocab.json; raise ValueError unless it is {piece: id}."""
    ids = parse_bounded_json(vocab, "vocab.json", MAX_VOCABULARY_VALUES)
    check_ids(ids, "vocab.json")
    return ids


def _parse_merges(merges: str) -> list[tuple[str, str]]:
    """Parse the lines of a merges.txt."""
    lines = [line for line in merges.split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines]
    if wrong := next((line for line, pair in zip(lines, pairs) if len(pair) != 2), None):
        raise ValueError(
            f"merges: a line is two pieces with a blank between them, not {wrong[:60]!r}"
        )
    return [(first, second) for first, second in pairs]


def _make_continuing(encoder: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """Return the tokenizer of a text that continues another; None if it is the same.

    They differ if byte-level BPE puts a space before a text that begins without one.
    """
    if "add_prefix_space=True" not in repr(encoder.pre_tokenizer):
        return None
    settings = json.loads(encoder.to_str())
    for step in iterate_steps(settings["pre_tokenizer"]):
        if step.get("type") == "ByteLevel":
            step["add_prefix_space"] = False
    return tokenizers.Tokenizer.from_str(json.dumps(settings))
