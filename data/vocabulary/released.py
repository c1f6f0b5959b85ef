"""Read released vocabularies with the `tokenizers` library: WordPiece, BPE, tokenizer.json.

WordPiece is that of BERT (Devlin et al. 2018), byte-level BPE that of GPT-2 (Radford et al. 2019)
and RoBERTa (Liu et al. 2019), BPE within words that of GPT (Radford et al. 2018). The encoders have
no special tokens, so "[MASK]" in a text is plain text.
"""

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.corpus.untrusted import MAX_VOCABULARY_VALUES, parse_bounded_json
from data.vocabulary.base import PROBE_TEXT, Vocabulary, is_unused
from data.vocabulary.tokenizer_checks import (
    check_id,
    check_ids,
    check_tokenizer,
    naming_library_errors,
)

END_OF_WORD = "</w>"
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
    ) -> None:
        """Initialize the vocabulary.

        Args:
          kind: kind of the vocabulary, as data/vocabulary/load.py lists them.
          encoder: tokenizer that encodes special tokens in a text as plain text.
          decoder: tokenizer with the same ids and the special tokens.
          style: how pieces mark the beginning of a word, a key of the table above.
          files: {file name: contents} of the released form.
          special_pieces: special tokens in addition to the usual ones.
          roles: {role: special token}, where the vocabulary's own files name it.
          options: keyword arguments with which the vocabulary is read again.
        """
        self._encoder, self._decoder, self._files = encoder, decoder, files
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
        super().__init__(
            kind=kind,
            pieces=pieces,
            special=[not p or p in special_pieces or is_unused(p) for p in pieces],
            starts_word=list(map(WORD_START_RULES[style], pieces)),
            options=options or {},
            normalize=encoder.normalizer.normalize_str if encoder.normalizer else lambda text: text,
            roles=roles,
        )

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with _naming_texts(texts):
            found = self._encoder.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        with _naming_texts(texts):
            found = self._encoder.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in found]

    def decode(self, ids: Sequence[int]) -> str:
        if self._joiner:
            return self._joiner.decode([self.pieces[int(i)] for i in ids])
        return self._decoder.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the tokenizer with its special tokens as the text of a tokenizer.json."""
        return self._decoder.to_str()

    def export_files(self) -> dict[str, bytes]:
        return dict(self._files)


def _naming_texts(texts: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Raise ValueError for errors of the library: its regular expressions give up at a limit."""
    longest = max(map(len, texts), default=0)
    return naming_library_errors(f"{len(texts):,} text(s) of up to {longest:,} characters")


def read_wordpiece(
    vocab: str,
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> ReleasedVocabulary:
    """Read a WordPiece vocabulary.

    Args:
      vocab: text of a vocab.txt, one piece a line.
      lowercase: whether case is folded; None: if no piece except [...] has an upper-case letter.
      strip_accents: whether accents are removed; None: if case is folded, as in BERT.
      chinese: whether each ideograph is a word.

    Raises:
      ValueError: if a piece appears twice or [UNK] is missing.
    """
    pieces = vocab.split("\n")
    pieces = pieces[:-1] if pieces and pieces[-1] == "" else pieces
    ids = {piece.rstrip("\r"): i for i, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise ValueError(f"vocab.txt: {len(pieces) - len(ids)} pieces appear twice")
    if "[UNK]" not in ids:
        raise ValueError("vocab.txt: no piece [UNK], so this is not a WordPiece vocabulary")
    if lowercase is None:
        lowercase = not any(piece != piece.lower() for piece in ids if not piece.startswith("["))
    if not all(isinstance(option, bool | None) for option in (lowercase, strip_accents, chinese)):
        raise ValueError(f"vocab.txt: options {(lowercase, strip_accents, chinese)!r:.80}")
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return ReleasedVocabulary(
        "wordpiece",
        tokenizer,
        tokenizer,
        "wordpiece",
        files={"vocab.txt": vocab.encode()},
        options={"lowercase": lowercase, "strip_accents": strip_accents, "chinese": chinese},
    )


def read_byte_bpe(vocab: str, merges: str) -> ReleasedVocabulary:
    """Read byte-level BPE from the texts of a vocab.json or encoder.json and its merges."""
    ids, pairs = _parse_ids(vocab), _parse_merges(merges)
    with naming_library_errors("vocab.json"):
        tokenizer = tokenizers.Tokenizer(models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    files = {"vocab.json": vocab.encode(), "merges.txt": merges.encode()}
    return ReleasedVocabulary("byte_bpe", tokenizer, tokenizer, "byte", files=files)


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
    return ReleasedVocabulary("word_bpe", tokenizer, tokenizer, "whole", files=files)


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


def read_tokenizer_json(text: str, roles: dict[str, str] | None = None) -> ReleasedVocabulary:
    """Read a vocabulary from the text of a tokenizer.json.

    Args:
      text: the file's text.
      roles: {role: special token} of the settings in the same folder.

    Raises:
      ValueError: if the tokenizers library cannot read it.
    """
    settings = parse_bounded_json(text, "tokenizer.json", MAX_VOCABULARY_VALUES)
    try:
        check_tokenizer(settings)
    except ValueError as error:
        raise ValueError(f"tokenizer.json: {error}") from None
    tokens = settings.get("added_tokens") or ()
    added = [token["content"] for token in tokens if token["special"]]
    with naming_library_errors("tokenizer.json"):
        decoder = tokenizers.Tokenizer.from_str(text)
        hidden = json.dumps(_hide_special_pieces(settings, set(added)))
        encoder = tokenizers.Tokenizer.from_str(hidden)
    return ReleasedVocabulary(
        "tokenizer_json",
        encoder,
        decoder,
        _detect_style(settings),
        files={"tokenizer.json": text.encode()},
        special_pieces=frozenset(added),
        roles=roles,
        options={"roles": roles or {}},
    )


def _hide_special_pieces(settings: dict[str, Any], special: set[str]) -> dict[str, Any]:
    """Return the settings with special tokens renamed to strings that no text contains.

    The ids and the unknown piece stay.
    """
    model = settings["model"]
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    names = {piece: f"\ufdd1{i}" for i, piece in enumerate(sorted(special - {unknown}))}
    added = [
        token | {"content": names.get(token["content"], token["content"])}
        for token in settings.get("added_tokens") or ()
    ]
    added = [token for token in added if token["content"] != unknown]
    if isinstance(model["vocab"], dict):
        vocab = {names.get(piece, piece): i for piece, i in model["vocab"].items()}
    else:
        vocab = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    changed = {"model": model | {"vocab": vocab}, "added_tokens": added, "post_processor": None}
    return settings | changed | {"truncation": None, "padding": None}


def _detect_style(settings: dict[str, Any]) -> str:
    """Return how the pieces of a tokenizer.json mark the beginning of a word."""
    steps = json.dumps(
        [settings.get(key) for key in ("pre_tokenizer", "normalizer", "decoder")],
        ensure_ascii=False,
    )
    if settings["model"]["type"] == "WordPiece":
        return "wordpiece"
    if '"ByteLevel"' in steps:
        return "byte"
    return "space" if '"Metaspace"' in steps or "▁" in steps else "whole"
