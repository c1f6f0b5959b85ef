"""The base class of all vocabularies; data/vocabulary/load.py lists the kinds and reads them."""

import abc
import collections
import functools
import hashlib
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from data.corpus.paths import as_path
from data.vocabulary.word_boundaries import find_script_boundaries

VERSION = 1
DESCRIPTION_FILE = "vocabulary.json"
NUM_SENTINELS = 100
MAX_SENTINELS = 1000  # after the pieces; T5 has 100
SPELLED = ("token_ids", "backward_ids")  # keys of batches whose words a model may read spelled
# {role: names of its special token in released vocabularies}; the first match wins.
ROLE_PIECES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|endoftext|>"),
}
SENTINEL_PIECE = re.compile(r"<extra_id_(\d+)>\Z")
UNUSED_PIECE = re.compile(r"\[unused\d+\]\Z|madeupword\d+\Z")
WORD_MARKS = "▁Ġ"  # how pieces of SentencePiece and of byte-level BPE write a blank
BLANK_SIGN = "␣"  # how a token of blanks is shown
SPACE_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥"}  # how other white space is shown
SPACE_CODES = str.maketrans(SPACE_SIGNS)
# A text whose normalized form is part of the fingerprint.
PROBE_TEXT = "Ａ probe — of Çase, ACCENTS,\taﬁx  and №½ 数学 …"


class Vocabulary(abc.ABC):
    """Maps text to token ids and back; the abstract base class of all kinds of vocabulary.

    Attributes:
      size: number of ids, special tokens and sentinels included.
      pieces: tuple of `size` strings; "" for an id without a piece.
      pad, unk, cls, sep, mask, bos, eos: ids of the special tokens; None if there is no such token.
      sentinels: ids of <extra_id_0>, <extra_id_1>, ...; empty if there are none.
      starts_word: bool [size], True for pieces that begin a word and for special tokens. The first
        piece of a text begins a word, too.
      special: bool [size], True for control, unknown, unused and sentinel pieces, which are never
        masked and never sampled.
      keeps_spaces: whether the space before a word belongs to its piece (byte-level BPE), so that
        " word" and "word" differ.
      cuts_sentences: whether texts are cut into sentences, so that no token crosses two; sequences
        of letters are not.
      overlap: letters of a token, where a token begins at each letter; 0: tokens do not overlap.
      fingerprint: hash of kind, pieces, scores, special tokens and normalization, independent of
        the file format.
      encoder_digest: hash of what else decides the ids of a text, such as merges; None: nothing.
      reading_note: a line on what was chosen where its files do not say; "": nothing was.
    """

    keeps_spaces = False
    cuts_sentences = True
    overlap = 0
    reading_note = ""

    def __init__(
        self,
        *,
        kind: str,
        pieces: Sequence[str],
        special: Sequence[bool],
        starts_word: Sequence[bool],
        options: dict[str, Any],
        normalize: Callable[[str], str],
        scores: Sequence[float] = (),
        roles: dict[str, str] | None = None,
        encoder_parts: Any = None,
    ) -> None:
        """Initialize the attributes that all kinds have.

        Args:
          options: keyword arguments with which the kind is loaded again; JSON values.
          scores: the score of each piece, if the model has scores.
          roles: {role: special token}, where the vocabulary's own files name it.
          encoder_parts: what the fingerprint lacks of the encoder, a JSON value; None: nothing.
        """
        self.kind = kind
        self.size = len(pieces)
        self.pieces = tuple(pieces)
        self.options = dict(options)
        ids = {piece: i for i, piece in enumerate(pieces)}
        found = _find_roles(ids, roles or {})
        self.pad, self.unk, self.cls, self.sep, self.mask, self.bos, self.eos = found
        self.special = np.array(special, np.bool_)
        self.starts_word = np.array(starts_word, np.bool_)
        self.special[[i for i in found if i is not None]] = True
        # An unknown piece may begin a word or continue one; its kind decides.
        self.starts_word |= self.special & (np.arange(self.size) != self.unk)
        self.special.flags.writeable = self.starts_word.flags.writeable = False
        numbered = {
            int(match[1]): i
            for piece, i in ids.items()
            if piece[:1] == "<" and (match := SENTINEL_PIECE.match(piece))
        }
        self.sentinels = (
            tuple(numbered[n] for n in range(len(numbered))) if _is_contiguous(numbered) else ()
        )
        description = [
            kind,
            self.pieces,
            [f"{score:.6g}" for score in scores],
            np.flatnonzero(self.special).tolist(),
        ]
        description += [found, normalize(PROBE_TEXT)]
        self.fingerprint = _hash_json(description)
        self._normalize = normalize
        self._known: dict[str, bool] = {}  # of characters that a text had
        self.encoder_digest = None if encoder_parts is None else _hash_json(encoder_parts)

    @property
    def start(self) -> int | None:
        """The id that a decoder reads first: `bos`, or `eos` in a vocabulary without it."""
        return self.eos if self.bos is None else self.bos

    @functools.cached_property
    def script_boundaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether each piece begins a word by its script, and whether a word begins after it."""
        return find_script_boundaries(self.pieces, self.special, self.keeps_spaces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text.

        No special id is added, and a special token in the text ("[MASK]") is encoded as plain text.
        """
        return self.encode_batch([text])[0]

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as `encode` does."""

    @abc.abstractmethod
    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return (ids, character range [begin, end) of each id) of each text.

        The ids are as from `encode_batch`.
        """

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode the sentences text[starts[i]:ends[i]].

        Args:
          text: UTF-8.
          starts: byte offset of each sentence.
          ends: byte offset after each sentence.
          first: index of the first sentence of each document.

        Returns:
          int32, the ids of all sentences in order, and int64, the number of ids of each sentence.
        """
        spans = zip(starts.tolist(), ends.tolist())
        sentences = self.encode_batch([text[start:end].decode() for start, end in spans])
        lengths = np.array([len(ids) for ids in sentences], np.int64)
        all_ids = itertools.chain.from_iterable(sentences)
        return np.fromiter(all_ids, np.int32, count=int(lengths.sum())), lengths

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; special ids appear as their pieces."""

    def find_unknown_characters(self, text: str) -> collections.Counter[str]:
        """Count the characters of a text that no piece has."""
        found: collections.Counter[str] = collections.Counter()
        text = unicodedata.normalize("NFC", text)
        for character in set(text):
            if character not in self._known:
                written = self._normalize(character).strip(f"{WORD_MARKS} \t\r\n")
                self._known[character] = self._alphabet.issuperset(written)
            if not self._known[character]:
                found[character] = text.count(character)
        return found

    @functools.cached_property
    def _alphabet(self) -> frozenset[str]:
        """The characters of all pieces that a text can have."""
        return frozenset().union(*itertools.compress(self.pieces, ~self.special))

    def id_to_piece(self, token_id: int) -> str:
        """Return the piece of an id."""
        return self.pieces[token_id]

    def is_blank(self, token_id: int) -> bool:
        """Return whether an id stands for blanks alone."""
        piece = self.pieces[token_id]
        return bool(piece) and not piece.strip(WORD_MARKS) and not self.decode([token_id]).strip()

    def format_token(self, token_id: int) -> str:
        """Return the text of one id as a reader sees it, without the blanks around it.

        `⏎` is the end of a line and `⇥` a tab, wherever they are in the token; `␣` is a blank of a
        token of blanks. A token without a text of its own, such as a part of a character, is shown
        by its piece.
        """
        piece = self.pieces[token_id]
        if self.is_blank(token_id):
            return BLANK_SIGN * len(piece)
        whole = self.decode([token_id])
        if whole and not whole.strip() and not self.special[token_id]:
            return "".join(SPACE_SIGNS.get(character, BLANK_SIGN) for character in whole)
        text = show_line_ends(whole)
        return piece if not text or "\ufffd" in text else text.removeprefix("##")

    @abc.abstractmethod
    def export_files(self) -> dict[str, bytes]:
        """Return the vocabulary in its released form, {file name: contents}."""

    @property
    def artefacts(self) -> dict[str, Callable[[str], None]]:
        """{folder of a workdir: function that writes it}, as data/source.py describes."""
        return {"vocabulary": self.save}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of the vocabulary and their description to a folder, made if absent."""
        folder = as_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in self.export_files().items():
            (folder / name).write_bytes(contents)
        description = {
            "version": VERSION,
            "kind": self.kind,
            "size": self.size,
            "options": self.options,
            **identify_encoding(self),
        }
        (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=1) + "\n")

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and identify_encoding(self) == identify_encoding(other)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        fields = f"kind={self.kind!r}, size={self.size}, fingerprint={self.fingerprint!r}"
        return f"{type(self).__name__}({fields})"


def show_line_ends(text: str) -> str:
    """Return a text with signs for line ends and tabs, such as `.⏎`, and no blanks around it."""
    return text.translate(SPACE_CODES).strip()


def identify_encoding(encoding: Any) -> dict[str, str]:
    """Return what a file records of a vocabulary, or of another `data.source.Encoding`."""
    digest = getattr(encoding, "encoder_digest", None)
    return {"fingerprint": encoding.fingerprint} | ({"encoder_digest": digest} if digest else {})


def find_difference(vocabulary: Vocabulary, recorded: Mapping[str, Any]) -> str | None:
    """Return how a vocabulary differs from the one that a file recorded, or None.

    Older files have no digest of the encoder.
    """
    for key, noun in (("fingerprint", "fingerprint"), ("encoder_digest", "digest of its encoder")):
        found = getattr(vocabulary, key)
        if found != recorded.get(key, found):
            return f"its {noun} is {found}, but {recorded[key]!r:.80} was saved"
    return None


def _hash_json(value: Any) -> str:
    """Return the start of a hash of a JSON value."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def is_unused(piece: str) -> bool:
    """Return whether a piece is reserved: [unused7], madeupword0001, a sentinel."""
    return piece[:1] in ("[", "m", "<") and bool(
        UNUSED_PIECE.match(piece) or SENTINEL_PIECE.match(piece)
    )


def _find_roles(ids: dict[str, int], given: dict[str, str]) -> list[int | None]:
    """Return the id of each role, None for a role without a piece.

    A name in `given`, which comes from the vocabulary's own files, precedes the usual names. The
    pieces <s> and </s> serve as cls and sep only next to a <mask> (RoBERTa); T5's </s> is only eos.
    Tokens with a mask but neither cls nor sep, such as EuroBERT's, have bos and eos in these roles.
    """
    found = []
    for role, names in ROLE_PIECES.items():
        if role in given:
            names = (given[role],)
        elif role in ("cls", "sep") and "<mask>" not in ids:
            names = names[:2]
        found.append(next((ids[name] for name in names if name in ids), None))
    # GPT-2's settings name <|endoftext|> as unknown, too, but bytes are never unknown.
    if found[1] in found[5:]:
        found[1] = None
    _, _, cls, sep, mask, bos, eos = found
    if (cls, sep) == (None, None) and None not in (mask, bos, eos):
        found[2:4] = bos, eos
    return found


def _is_contiguous(numbered: dict[int, int]) -> bool:
    """Return whether the keys are 0, 1, ..., n - 1."""
    return set(numbered) == set(range(len(numbered)))
