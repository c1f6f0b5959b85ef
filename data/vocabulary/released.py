"""Vocabularies that others released, read by the `tokenizers` library: WordPiece, BPE of bytes or words, tokenizer.json.

WordPiece as in BERT (Devlin et al. 2018), byte-level BPE as in GPT-2 (Radford et al. 2019) and RoBERTa (Liu et al.
2019), BPE within words as in GPT (Radford et al. 2018). The library's tokenizers are built without special tokens, so that "[MASK]" in a text is text like any other.
"""

import json
from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.vocabulary.base import Vocabulary, is_unused

END_OF_WORD = "</w>"
WORD_BEGINNINGS = {
    "wordpiece": lambda piece: not piece.startswith("##"),
    "byte": lambda piece: (
        piece[:1] in ("Ġ", "Ċ", "ĉ", "č")
    ),  # how byte BPE writes blank, line feed, tab, return
    "space": lambda piece: piece.startswith("▁"),
    "whole": lambda piece: True,
}


class ReleasedVocabulary(Vocabulary):
    """A vocabulary whose encoder is a `tokenizers.Tokenizer`."""

    def __init__(
        self, kind, encoder, decoder, style, *, files, special_pieces=(), roles=None, options=None
    ):
        """`encoder` and `decoder`: tokenizers with the same ids, the first blind to special tokens.

        style: which pieces begin a word, a key of WORD_BEGINNINGS. special_pieces: names beyond the usual ones.
        """
        self._encoder, self._decoder, self._files = encoder, decoder, files
        ids = decoder.get_vocab(with_added_tokens=True)
        pieces = [""] * (max(ids.values()) + 1)
        for piece, i in ids.items():
            pieces[i] = piece
        self.keeps_spaces = style == "byte"
        super().__init__(
            kind=kind,
            pieces=pieces,
            special=[not p or p in special_pieces or is_unused(p) for p in pieces],
            starts_word=list(map(WORD_BEGINNINGS[style], pieces)),
            options=options or {},
            normalize=encoder.normalizer.normalize_str if encoder.normalizer else lambda text: text,
            roles=roles,
        )

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [
            encoding.ids
            for encoding in self._encoder.encode_batch_fast(list(texts), add_special_tokens=False)
        ]

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return [
            (encoding.ids, encoding.offsets)
            for encoding in self._encoder.encode_batch(list(texts), add_special_tokens=False)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return self._decoder.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """The tokenizer with its special tokens, as the `tokenizers` library writes it."""
        return self._decoder.to_str()

    def files(self) -> dict[str, bytes]:
        return dict(self._files)


def read_wordpiece(
    vocab: str, *, lowercase=None, strip_accents=None, chinese=True
) -> ReleasedVocabulary:
    """BERT's vocab.txt, a piece a line.

    lowercase: None asks the vocabulary: it is lower-cased if no piece but the bracketed ones has an upper-case letter.
    strip_accents: None strips them where text is lower-cased, as BERT does. chinese: ideographs are words of their own.
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
    """GPT-2's or RoBERTa's vocab.json (encoder.json) and merges.txt (vocab.bpe)."""
    tokenizer = tokenizers.Tokenizer(models.BPE(json.loads(vocab), _pairs(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    files = {"vocab.json": vocab.encode(), "merges.txt": merges.encode()}
    return ReleasedVocabulary("byte_bpe", tokenizer, tokenizer, "byte", files=files)


def is_word_bpe(vocab: str) -> bool:
    """Whether a vocab.json is GPT's, whose pieces are marked where a word ends."""
    return any(piece.endswith(END_OF_WORD) for piece in json.loads(vocab))


def read_word_bpe(vocab: str, merges: str) -> ReleasedVocabulary:
    """GPT's vocab.json and merges.txt, read as `transformers` does: cleaned, lower-cased and cut into words as for BERT.

    The paper's own code cleaned text by ftfy and cut it by spaCy, so its ids differ where these do. A piece tells where
    a word ends and not where one begins, so each counts as a word of its own.
    """
    ids = json.loads(vocab)
    if "<unk>" not in ids:
        raise ValueError(
            "vocab.json: no piece <unk>, which such a vocabulary has for what its letters cannot write"
        )
    bpe = models.BPE(ids, _pairs(merges), unk_token="<unk>", end_of_word_suffix=END_OF_WORD)
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
    files = {"vocab.json": vocab.encode(), "merges.txt": merges.encode()}
    return ReleasedVocabulary("word_bpe", tokenizer, tokenizer, "whole", files=files)


def _pairs(merges: str) -> list[tuple[str, str]]:
    lines = [line for line in merges.split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines]
    if wrong := next((line for line, pair in zip(lines, pairs) if len(pair) != 2), None):
        raise ValueError(
            f"merges: a line is two pieces with a blank between them, not {wrong[:60]!r}"
        )
    return [(first, second) for first, second in pairs]


def read_tokenizer_json(text: str, roles: dict[str, str] | None = None) -> ReleasedVocabulary:
    """A tokenizer.json of the `tokenizers` library; `roles`: the special pieces that the files beside it name."""
    try:
        decoder = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(
            f"tokenizer.json: the tokenizers library cannot read it: {error}"
        ) from error
    described = json.loads(text)
    added = [token["content"] for token in described.get("added_tokens", ()) if token["special"]]
    encoder = tokenizers.Tokenizer.from_str(json.dumps(_blind(described, set(added))))
    return ReleasedVocabulary(
        "tokenizer_json",
        encoder,
        decoder,
        _style(described),
        files={"tokenizer.json": text.encode()},
        special_pieces=frozenset(added),
        roles=roles,
        options={"roles": roles or {}},
    )


def _blind(described: dict, special: set[str]) -> dict:
    """The same tokenizer with special pieces renamed to what no text contains; ids stay, the unknown piece too."""
    model = described["model"]
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    names = {piece: f"\ufdd1{i}" for i, piece in enumerate(sorted(special - {unknown}))}
    added = [
        token | {"content": names.get(token["content"], token["content"])}
        for token in described["added_tokens"]
    ]
    added = [token for token in added if token["content"] != unknown]
    if isinstance(model["vocab"], dict):
        vocab = {names.get(piece, piece): i for piece, i in model["vocab"].items()}
    else:
        vocab = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    blind = {"model": model | {"vocab": vocab}, "added_tokens": added, "post_processor": None}
    return described | blind | {"truncation": None, "padding": None}


def _style(described: dict) -> str:
    """How the pieces of a tokenizer.json mark a word's beginning."""
    parts = json.dumps(
        [described.get(key) for key in ("pre_tokenizer", "normalizer", "decoder")],
        ensure_ascii=False,
    )
    if described["model"]["type"] == "WordPiece":
        return "wordpiece"
    if '"ByteLevel"' in parts:
        return "byte"
    return "space" if '"Metaspace"' in parts or "▁" in parts else "whole"
