"""A vocabulary turns text into ids and back, and knows which ids are special and which begin a word.

What every kind has in common; data/vocabulary/load.py says which kinds there are and how they are read and written.
"""

import abc
import hashlib
import json
import re
from collections.abc import Callable, Sequence

import numpy as np

from data.corpus.paths import as_path

VERSION = 1
DESCRIPTION = "vocabulary.json"
SENTINELS = 100
ROLES = {  # role -> the names that a special piece of that role has in the released vocabularies, first match wins
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|endoftext|>"),
}
SENTINEL = re.compile(r"<extra_id_(\d+)>\Z")
UNUSED = re.compile(r"\[unused\d+\]\Z|madeupword\d+\Z")
PROBE = "Ａ probe — of Çase, ACCENTS,\taﬁx  and №½ 数学 …"  # what normalisation makes of it is part of the fingerprint


class Vocabulary(abc.ABC):
    """Common part of all kinds; `encode_batch`, `encode_offsets`, `decode` and `files` belong to each kind.

    size            number of ids, specials and sentinels included
    pieces          tuple of size strings; an id that no piece has is ""
    pad unk cls sep mask bos eos    ids, or None where the vocabulary has no such piece
    sentinels       ids of <extra_id_0>, <extra_id_1>, ...; () where there are none
    starts_word     np.bool_[size], True where a piece begins a word or is special. A text's first piece begins one too
    special         np.bool_[size], True for control, unknown, unused and sentinel ids: never masked, never drawn
    keeps_spaces    True if the blank before a word belongs to its piece (byte BPE): then " word" and "word" differ
    fingerprint     hash over kind, pieces, scores, specials and normalisation, whichever file they came from
    """

    keeps_spaces = False

    def __init__(
        self,
        *,
        kind: str,
        pieces: Sequence[str],
        special: Sequence[bool],
        starts_word: Sequence[bool],
        options: dict,
        normalize: Callable[[str], str],
        scores: Sequence[float] = (),
        roles: dict[str, str] | None = None,
    ):
        self.kind, self.size, self.pieces, self.options = (
            kind,
            len(pieces),
            tuple(pieces),
            dict(options),
        )
        ids = {piece: i for i, piece in enumerate(pieces)}
        found = _roles(ids, roles or {})
        self.pad, self.unk, self.cls, self.sep, self.mask, self.bos, self.eos = found
        self.special, self.starts_word = (
            np.array(special, np.bool_),
            np.array(starts_word, np.bool_),
        )
        self.special[[i for i in found if i is not None]] = True
        known = np.arange(self.size) != self.unk
        self.starts_word |= (
            self.special & known
        )  # an unknown piece may be a word or go on with one: as its kind says
        self.special.flags.writeable = self.starts_word.flags.writeable = False
        numbered = {
            int(match[1]): i
            for piece, i in ids.items()
            if piece[:1] == "<" and (match := SENTINEL.match(piece))
        }
        self.sentinels = (
            tuple(numbered[n] for n in range(len(numbered))) if _dense(numbered) else ()
        )
        described = [
            kind,
            self.pieces,
            [f"{score:.6g}" for score in scores],
            np.flatnonzero(self.special).tolist(),
        ]
        described += [found, normalize(PROBE)]
        self.fingerprint = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32]

    def encode(self, text: str) -> list[int]:
        """Ids of a text. No special id is added, and text that looks like one ("[MASK]") is only text."""
        return self.encode_batch([text])[0]

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as `encode` does."""

    @abc.abstractmethod
    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """(ids, the characters [begin, end) that each stands for) of each text; the ids are those of `encode_batch`."""

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids (int32) of the sentences text[starts[i]:ends[i]], one after another, and the number of ids of each.

        text: UTF-8. first: the index of each document's first sentence.
        """
        parts = self.encode_batch(
            [text[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist())]
        )
        lengths = np.array([len(part) for part in parts], np.int64)
        ids = np.fromiter((i for part in parts for i in part), np.int32, count=int(lengths.sum()))
        return ids, lengths

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special ids appear by their names."""

    def piece(self, i: int) -> str:
        return self.pieces[i]

    @abc.abstractmethod
    def files(self) -> dict[str, bytes]:
        """The released form: file name -> contents."""

    @property
    def artefacts(self) -> dict[str, Callable]:
        """What a workdir keeps of it: see `data.source.Encoding`."""
        return {"vocabulary": self.save}

    def save(self, folder) -> None:
        """Write the vocabulary's files and their description into `folder`, made if absent, for `load_vocabulary`."""
        folder = as_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in self.files().items():
            (folder / name).write_bytes(contents)
        described = {
            "version": VERSION,
            "kind": self.kind,
            "size": self.size,
            "options": self.options,
            "fingerprint": self.fingerprint,
        }
        (folder / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n")

    def __len__(self):
        return self.size

    def __eq__(self, other):
        return isinstance(other, Vocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self):
        return hash(self.fingerprint)

    def __repr__(self):
        return f"{type(self).__name__}(kind={self.kind!r}, size={self.size}, fingerprint={self.fingerprint!r})"


def is_unused(piece: str) -> bool:
    """True for reserved pieces: [unused7], madeupword0001, sentinels."""
    return piece[:1] in ("[", "m", "<") and bool(UNUSED.match(piece) or SENTINEL.match(piece))


def _roles(ids: dict[str, int], given: dict[str, str]) -> list[int | None]:
    """Id of each role: by the piece that the vocabulary's own files name, else by the usual names.

    The names <s> and </s> serve as cls and sep only where there is a <mask> (RoBERTa); T5's </s> is eos and no more.
    """
    found = []
    for role, names in ROLES.items():
        if role in given:
            names = (given[role],)
        elif role in ("cls", "sep") and "<mask>" not in ids:
            names = names[:2]
        found.append(next((ids[name] for name in names if name in ids), None))
    if (
        found[1] in found[5:]
    ):  # GPT-2's settings call <|endoftext|> unknown too, but bytes are never unknown
        found[1] = None
    return found


def _dense(numbered: dict[int, int]) -> bool:
    return set(numbered) == set(range(len(numbered)))
